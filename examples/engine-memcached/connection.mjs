// One connection to a memcached server, in its text protocol. Answers come in the order of the requests.
import { connect } from "node:net";
import { CallTimeouts } from "holdfast/engine";

const LINE_END = Buffer.from("\r\n");

export class Connection {
  #socket = null;
  #buffer = Buffer.alloc(0);
  /** Lines of statistics so far: END completes the answer. */
  #stats = {};
  /** Of each request under way: what takes its answer. */
  #waiting = [];
  #timeouts;
  #at;

  constructor(at, clock, callTimeoutMs) {
    this.#at = at;
    this.#timeouts = new CallTimeouts(clock, callTimeoutMs, () =>
      this.#end(new Error("memcached did not answer in time")),
    );
  }

  /** One command, with a block of data or without. Answers the words of its first line, and the block that came with it. */
  call(words, block) {
    return this.#timeouts.limit(
      new Promise((resolve, reject) => {
        this.#open();
        this.#waiting.push({ resolve, reject });
        this.#socket.write(block === undefined ? `${words}\r\n` : `${words}\r\n${block}\r\n`);
      }),
    );
  }

  /** What `stats` and the like tell, by name. */
  async stats(what) {
    return (await this.call(`stats ${what}`)).stats;
  }

  close() {
    this.#end(new Error("closed"));
    this.#timeouts.close();
  }

  #open() {
    if (this.#socket !== null) return;
    const socket = connect(this.#at);
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on("data", (data) => this.#received(data));
    // An answer that is lost with its connection is unknown: the core asks again.
    const over = (error) => socket === this.#socket && this.#end(error ?? new Error("the connection ended"));
    socket.on("error", over);
    socket.on("close", () => over());
  }

  #end(error) {
    this.#socket?.destroy();
    this.#socket = null;
    this.#buffer = Buffer.alloc(0);
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }

  #received(data) {
    this.#buffer = Buffer.concat([this.#buffer, data]);
    for (;;) {
      const end = this.#buffer.indexOf(LINE_END);
      if (end < 0) return;
      const words = this.#buffer.toString("utf8", 0, end).split(" ");
      // Only VA comes with a block of data; its length is the second word.
      const length = words[0] === "VA" ? Number(words[1]) : -1;
      const next = length < 0 ? end + 2 : end + 2 + length + 2;
      if (this.#buffer.length < next) return;
      const block = length < 0 ? "" : this.#buffer.toString("utf8", end + 2, end + 2 + length);
      this.#buffer = this.#buffer.subarray(next);
      if (words[0] === "STAT") {
        this.#stats[words[1]] = words[2];
        continue;
      }
      const stats = this.#stats;
      this.#stats = {};
      const { resolve, reject } = this.#waiting.shift() ?? {};
      if (/^(ERROR|CLIENT_ERROR|SERVER_ERROR)$/.test(words[0])) reject?.(new Error(words.join(" ")));
      else resolve?.({ words, block, stats });
    }
  }
}
