import type { Children, Created, CreateMode, Node, Operation, Stat } from "../../driver.js";
import { Packet, type PacketReader } from "./jute.js";

/** The few requests that we make, each with the way its answer is read. */
export type Request<T> = {
  /** For errors: what is being done, without data. */
  readonly doing: string;
  readonly type: number;
  write(packet: Packet): void;
  read(reader: PacketReader): T;
};

/** Who may do what with a node that we create. */
export type Acl = { readonly perms: number; readonly scheme: string; readonly id: string };

const TYPE = {
  remove: 2,
  exists: 3,
  get: 4,
  set: 5,
  ping: 11,
  children: 12,
  check: 13,
  multi: 14,
  create: 15,
  removeWatches: 18,
  createContainer: 19,
  auth: 100,
  setWatches: 101,
  close: -11,
} as const;

/** Ids that requests of their own kind carry; others count up from 1. */
export const XID = { event: -1, ping: -2, auth: -4, setWatches: -8 } as const;

const XID_MAX = 2 ** 31 - 1;

/** The number of the next request: after the largest one comes 1 again. */
export function xidAfter(xid: number): number {
  return xid === XID_MAX ? 1 : xid + 1;
}

const FLAGS: Record<CreateMode, number> = {
  persistent: 0,
  ephemeral: 1,
  "ephemeral-sequential": 3,
  container: 4,
};

const ANY_VERSION = -1;
/** The type of a part of a transaction that failed, and of its end. */
const FAILED = -1;
const nothing = (): void => {};

function writeCreate(packet: Packet, path: string, data: Buffer, mode: CreateMode, acl: readonly Acl[]): void {
  packet.text(path).bytes(data);
  packet.list(acl, ({ perms, scheme, id }) => packet.int(perms).text(scheme).text(id));
  packet.int(FLAGS[mode]);
}

const createType = (mode: CreateMode): number => (mode === "container" ? TYPE.createContainer : TYPE.create);

export const create = (path: string, data: Buffer, mode: CreateMode, acl: readonly Acl[]): Request<Created> => ({
  doing: `creating ${path}`,
  type: createType(mode),
  write: (packet) => writeCreate(packet, path, data, mode, acl),
  read: (reader) => ({ path: reader.text(), czxid: reader.stat().czxid }),
});

export const remove = (path: string, version = ANY_VERSION): Request<void> => ({
  doing: `removing ${path}`,
  type: TYPE.remove,
  write: (packet) => void packet.text(path).int(version),
  read: nothing,
});

export const set = (path: string, data: Buffer, version = ANY_VERSION): Request<Stat> => ({
  doing: `writing ${path}`,
  type: TYPE.set,
  write: (packet) => void packet.text(path).bytes(data).int(version),
  read: (reader) => reader.stat(),
});

export const get = (path: string, watch: boolean): Request<Node> => ({
  doing: `reading ${path}`,
  type: TYPE.get,
  write: (packet) => void packet.text(path).flag(watch),
  // A copy: the packet it lies in is large and short-lived.
  read: (reader) => ({ data: Buffer.from(reader.bytes()), stat: reader.stat() }),
});

export const exists = (path: string, watch: boolean): Request<Stat> => ({
  doing: `asking for ${path}`,
  type: TYPE.exists,
  write: (packet) => void packet.text(path).flag(watch),
  read: (reader) => reader.stat(),
});

export const children = (path: string, watch: boolean): Request<Children> => ({
  doing: `listing ${path}`,
  type: TYPE.children,
  write: (packet) => void packet.text(path).flag(watch),
  read: (reader) => ({ names: reader.list(() => reader.text()), stat: reader.stat() }),
});

/** `children`: the watch of a list; otherwise that of a node. */
export const removeWatches = (path: string, kind: "children" | "node"): Request<void> => ({
  doing: `watching ${path} no more`,
  type: TYPE.removeWatches,
  write: (packet) => void packet.text(path).int(kind === "children" ? 1 : 2),
  read: nothing,
});

export const setWatches = (zxid: bigint, paths: readonly (readonly string[])[]): Request<void> => ({
  doing: "watching again",
  type: TYPE.setWatches,
  write(packet) {
    packet.long(zxid);
    for (const list of paths) packet.list(list, (path) => packet.text(path));
  },
  read: nothing,
});

export const auth = (scheme: string, secret: string): Request<void> => ({
  doing: "authenticating",
  type: TYPE.auth,
  write: (packet) => void packet.int(0).text(scheme).text(secret),
  read: nothing,
});

export const ping: Request<void> = { doing: "pinging", type: TYPE.ping, write: nothing, read: nothing };
export const close: Request<void> = { doing: "closing the session", type: TYPE.close, write: nothing, read: nothing };

/** Null when all of it took effect; otherwise the code of each part, and none did. */
export type MultiAnswer = readonly number[] | null;

export const multi = (operations: readonly Operation[], acl: readonly Acl[]): Request<MultiAnswer> => ({
  doing: `changing ${operations
    .map(({ path }) => path)
    .join(", ")
    .slice(0, 200)}`,
  type: TYPE.multi,
  write(packet) {
    for (const operation of operations) writeOperation(packet, operation, acl);
    packet.int(FAILED).flag(true).int(-1);
  },
  read: readMulti,
});

function writeOperation(packet: Packet, operation: Operation, acl: readonly Acl[]): void {
  const begin = (type: number): Packet => packet.int(type).flag(false).int(-1);
  switch (operation.kind) {
    case "create":
      begin(createType(operation.mode));
      return writeCreate(packet, operation.path, operation.data, operation.mode, acl);
    case "set":
      return set(operation.path, operation.data, operation.version).write(begin(TYPE.set));
    case "remove":
      return remove(operation.path, operation.version).write(begin(TYPE.remove));
    case "check":
      begin(TYPE.check)
        .text(operation.path)
        .int(operation.version ?? ANY_VERSION);
  }
}

/** Only failures are read to their end: servers differ in what they say about each part of a success. */
function readMulti(reader: PacketReader): MultiAnswer {
  const codes: number[] = [];
  for (;;) {
    const [type, done] = [reader.int(), reader.flag()];
    reader.int();
    if (done) return codes;
    if (type !== FAILED) return null;
    codes.push(reader.int());
  }
}

export type Handshake = { readonly timeoutMs: number; readonly sessionId: bigint; readonly password: Buffer };

export function connectPacket(lastZxid: bigint, { timeoutMs, sessionId, password }: Handshake): Buffer {
  // Not to a server that lost the others and would only let us read.
  return new Packet().int(0).long(lastZxid).int(timeoutMs).long(sessionId).bytes(password).flag(false).finish();
}

export function readHandshake(reader: PacketReader): Handshake {
  reader.int();
  const [timeoutMs, sessionId] = [reader.int(), reader.long()];
  return { timeoutMs, sessionId, password: Buffer.from(reader.bytes()) };
}

export function requestPacket(xid: number, request: Request<unknown>): Buffer {
  const packet = new Packet().int(xid).int(request.type);
  request.write(packet);
  return packet.finish();
}
