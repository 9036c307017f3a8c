// A proxy in front of a real server that changes what the server answers, a frame at a time: the attacks are one table for all
// protocols. It is plain JavaScript, because the programs that are attacked are processes of their own.
import { createServer, connect as dial } from "node:net";
import { SeededChance } from "../../dist/testing/index.js";

const bytes = (length, write) => {
  const buffer = Buffer.alloc(length);
  write(buffer);
  return buffer;
};

/** Where the answer that begins here ends; -1 as long as it has not come whole. */
function respEnd(data, at) {
  const line = data.indexOf("\r\n", at);
  if (line < 0) return -1;
  const type = String.fromCharCode(data[at]);
  const count = Number(data.toString("latin1", at + 1, line));
  let end = line + 2;
  if ("$=!".includes(type) && count >= 0) end += count + 2;
  if ("*~>%".includes(type)) {
    for (let n = 0; n < count * (type === "%" ? 2 : 1); n += 1) {
      end = respEnd(data, end);
      if (end < 0) return -1;
    }
  }
  return end <= data.length ? end : -1;
}

const byLength = (head, lengthAt) => (data, at) => {
  if (at + head > data.length) return -1;
  const end = at + lengthAt(data, at);
  return end <= data.length ? end : -1;
};

/** The same frame with another length in its head. */
const withLength = (frame, write) => bytes(frame.length, (copy) => (frame.copy(copy), write(copy)));

const DATA = 0;

/** How each protocol's answers are cut into frames, how many bytes are a frame's head, and lengths that no frame can have. */
export const PROTOCOLS = {
  redis: {
    end: respEnd,
    head: 1,
    lengths: {
      huge: (frame) => Buffer.concat([Buffer.from("$2147483647\r\n"), frame]),
      "a huge list": (frame) => Buffer.concat([Buffer.from("*2147483647\r\n"), frame]),
      "a list longer than any": (frame) => Buffer.concat([Buffer.from("*4294967297\r\n"), frame]),
      "below zero": (frame) => Buffer.concat([Buffer.from("$-7\r\n"), frame]),
      "no number": (frame) => Buffer.concat([Buffer.from("$x\r\n"), frame]),
    },
  },
  postgres: {
    end: byLength(5, (data, at) => 1 + data.readInt32BE(at + 1)),
    head: 5,
    lengths: {
      huge: (frame) => withLength(frame, (copy) => copy.writeInt32BE(0x7fffffff, 1)),
      zero: (frame) => withLength(frame, (copy) => copy.writeInt32BE(0, 1)),
      "below zero": (frame) => withLength(frame, (copy) => copy.writeInt32BE(-7, 1)),
    },
  },
  mysql: {
    end: byLength(4, (data, at) => 4 + data.readUIntLE(at, 3)),
    head: 4,
    lengths: {
      huge: (frame) => withLength(frame, (copy) => copy.writeUIntLE(0xffffff, 0, 3)),
      zero: (frame) => withLength(frame, (copy) => copy.writeUIntLE(0, 0, 3)),
    },
  },
  zookeeper: {
    end: byLength(4, (data, at) => 4 + data.readInt32BE(at)),
    head: 4,
    lengths: {
      huge: (frame) => withLength(frame, (copy) => copy.writeInt32BE(0x7fffffff)),
      zero: (frame) => withLength(frame, (copy) => copy.writeInt32BE(0)),
      "below zero": (frame) => withLength(frame, (copy) => copy.writeInt32BE(-7)),
    },
  },
  etcd: {
    end: byLength(9, (data, at) => 9 + data.readUIntBE(at, 3)),
    head: 9,
    lengths: {
      huge: (frame) => withLength(frame, (copy) => copy.writeUIntBE(0xffffff, 0, 3)),
      zero: (frame) => withLength(frame, (copy) => copy.writeUIntBE(0, 0, 3)),
      // Of the gRPC message inside the frame.
      "a huge message": (frame) =>
        withLength(frame, (copy) => copy[3] === DATA && copy.length >= 14 && copy.writeUInt32BE(0xffffffff, 10)),
    },
  },
};

/**
 * What becomes of a frame: `said` in its place, and what comes `next`: "on" (the server's answers go on behind it), "silence" or
 * "end". `before` is the frame that this connection had last, `late` a frame that was kept back.
 */
const SHAPES = {
  garbage: ({ frame, noise }) => ({ said: noise(frame.length) }),
  "garbage in a whole frame": ({ frame, head, noise }) => ({
    said: Buffer.concat([frame.subarray(0, head), noise(Math.max(0, frame.length - head))]),
  }),
  "a bit turned": ({ frame, draw }) => ({
    said: withLength(frame, (copy) => {
      const at = draw(copy.length);
      copy[at] ^= 1 << draw(8);
    }),
  }),
  "half, then silence": ({ frame }) => ({ said: frame.subarray(0, frame.length >> 1), next: "silence" }),
  "whole, then the end": ({ frame }) => ({ said: frame, next: "end" }),
  "half, then the end": ({ frame }) => ({ said: frame.subarray(0, frame.length >> 1), next: "end" }),
  "half, then the next answers": ({ frame }) => ({ said: frame.subarray(0, frame.length >> 1) }),
  "one byte at a time": ({ frame }) => ({ said: frame, slowly: true }),
  doubled: ({ frame }) => ({ said: Buffer.concat([frame, frame]) }),
  dropped: () => ({ said: Buffer.alloc(0) }),
  "the answer before once more": ({ frame, before }) => ({ said: before ?? frame }),
  "after the next one": ({ frame }) => ({ said: Buffer.alloc(0), keeps: frame }),
};

/** By name: every shape, and every wrong length of this protocol. */
export function attacksOn(protocol) {
  const lengths = Object.entries(PROTOCOLS[protocol].lengths).flatMap(([name, write]) => [
    [`length: ${name}`, ({ frame }) => ({ said: write(frame) })],
    [`length: ${name}, then silence`, ({ frame }) => ({ said: write(frame), next: "silence" })],
  ]);
  return new Map([...Object.entries(SHAPES), ...lengths]);
}

export class HostileProxy {
  hits = 0;
  #protocol;
  #server;
  #chance;
  #attack = null;
  #left = 0;
  #skip = 0;
  #sockets = new Set();
  #pairs = new Set();
  #heard = new Set();

  constructor(protocol, seed) {
    this.#protocol = PROTOCOLS[protocol];
    this.#chance = new SeededChance(seed);
  }

  static async to(port, protocol, seed) {
    const proxy = new HostileProxy(protocol, seed);
    proxy.#server = createServer((near) => proxy.#join(near, dial(port, "127.0.0.1")));
    await new Promise((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get port() {
    return this.#server.address().port;
  }

  get connections() {
    return this.#pairs.size;
  }

  /** From the frame after `skip` frames on, `times` frames are changed. */
  arm(attack, { skip = 0, times = 1 } = {}) {
    this.#attack = attack;
    this.#skip = skip;
    this.#left = times;
  }

  heal() {
    this.#attack = null;
  }

  /** Every connection ends; new ones are taken. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** When the next frame has been changed. */
  hit() {
    return new Promise((resolve) => this.#heard.add(resolve));
  }

  async close() {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #join(near, far) {
    const line = { near, far, data: Buffer.alloc(0), before: undefined, late: [], silent: false, slow: null };
    this.#pairs.add(line);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      this.#sockets.add(one);
      one.setNoDelay(true);
      one.on("error", () => {});
      one.on("close", () => {
        this.#sockets.delete(one);
        if (one === near) this.#pairs.delete(line);
        if (!line.silent || one === near) other.destroy();
      });
    }
    near.on("data", (data) => far.write(data));
    far.on("data", (data) => this.#answers(line, data));
  }

  #answers(line, data) {
    line.data = Buffer.concat([line.data, data]);
    for (let end = this.#protocol.end(line.data, 0); end > 0; end = this.#protocol.end(line.data, 0)) {
      const frame = line.data.subarray(0, end);
      line.data = line.data.subarray(end);
      if (!line.silent) this.#frame(line, frame);
      if (line.data.length === 0) break;
    }
  }

  #frame(line, frame) {
    const { before } = line;
    line.before = frame;
    const late = line.late.splice(0);
    if (this.#attack === null || this.#left === 0 || this.#skip-- > 0) this.#say(line, frame, false);
    else {
      this.#left -= 1;
      const { said, next = "on", slowly = false, keeps } = this.#attack(this.#facts(frame, before));
      if (keeps !== undefined) line.late.push(keeps);
      this.#say(line, said, slowly);
      if (next === "silence") line.silent = true;
      if (next === "end") line.near.end();
      this.hits += 1;
      for (const tell of this.#heard) tell();
      this.#heard.clear();
    }
    for (const one of late) this.#say(line, one, false);
  }

  #facts(frame, before) {
    const draw = (below) => this.#chance.between(0, below - 1);
    const noise = (length) => bytes(length, (buffer) => buffer.forEach((_, n) => (buffer[n] = draw(256))));
    return { frame, before, head: this.#protocol.head, draw, noise };
  }

  /** In order, also behind what goes slowly. */
  #say(line, data, slowly) {
    const write = (part) => line.near.writable && line.near.write(part);
    if (!slowly && line.slow === null) {
      write(data);
      return;
    }
    const last = (line.slow = (line.slow ?? Promise.resolve()).then(async () => {
      for (const part of slowly ? [...data].map((byte) => Buffer.from([byte])) : [data]) {
        write(part);
        await new Promise((resolve) => setImmediate(resolve));
      }
    }));
    last.then(() => line.slow === last && (line.slow = null));
  }
}
