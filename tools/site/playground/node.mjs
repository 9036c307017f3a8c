// What the core uses of Node.js, for a page. The bundler puts it in the place of every `node:` module; the globals are set when
// it is loaded, which world.mjs does first.

globalThis.process ??= { pid: 1, nextTick: (run) => setTimeout(run, 0) };
const bytesOf = (text) => new TextEncoder().encode(text);
globalThis.Buffer ??= { alloc: () => new Uint8Array(), byteLength: (text) => bytesOf(text).length };

/** Bytes that are written as text from one to another: all that is asked of them. */
export function randomBytes(count) {
  const bytes = crypto.getRandomValues(new Uint8Array(count));
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"));
  return { length: count, toString: (_, from, to) => hex.slice(from, to).join("") };
}

/** For stripes, of which the playground has none. */
export function createHash() {
  throw new Error("there are no hashes in a page");
}

export const hostname = () => "page";
export const setMaxListeners = () => {};

/** A page does not follow a flow of control through its promises: nothing is re-entered here. */
export class AsyncLocalStorage {
  getStore() {}
  run(_, run) {
    return run();
  }
}

const silent = { hasSubscribers: false, publish() {}, runStores: (_, run) => run() };
export const channel = () => silent;
export const tracingChannel = () => ({
  hasSubscribers: false,
  start: silent,
  end: silent,
  asyncStart: silent,
  asyncEnd: silent,
  error: silent,
});
