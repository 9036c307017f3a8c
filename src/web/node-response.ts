import type { Answer } from "./answer.js";
import type { FirstRequest } from "./idempotency.js";
import type { NodeResponse } from "./request-end.js";

type HeaderValue = number | string | string[] | undefined;

/** A response of node:http that can be written. */
export interface WritableResponse extends NodeResponse {
  statusCode: number;
  readonly headersSent: boolean;
  getHeaders(): Readonly<Record<string, HeaderValue>>;
  getHeaderNames(): string[];
  setHeader(name: string, value: string | readonly string[]): unknown;
  removeHeader(name: string): void;
  writeHead(status: number): unknown;
  flushHeaders(): void;
  end(chunk: Uint8Array): unknown;
  emit(event: "drain"): boolean;
}

/** What other middleware has said of it stays, except for what describes another body. */
export function sendAnswer(response: WritableResponse, { status, headers, body }: Answer): void {
  // Somebody else has answered meanwhile, such as a time-out.
  if (response.headersSent) return;
  for (const name of response.getHeaderNames()) if (/^content-|^etag$/.test(name)) response.removeHeader(name);
  response.statusCode = status;
  for (const [name, values] of grouped(headers)) response.setHeader(name, values);
  // RFC 9110, 8.6: not there.
  if (status !== 204 && status !== 304) response.setHeader("Content-Length", String(body.length));
  response.end(body);
}

/** A header that stands several times is set once, with all its values. */
export function grouped(headers: Answer["headers"]): Map<string, string | string[]> {
  const values = new Map<string, string | string[]>();
  for (const [name, value] of headers) {
    const before = values.get(name);
    values.set(name, before === undefined ? value : [before, value].flat());
  }
  return values;
}

/** The headers as they stand. */
export function headersOf(headers: Readonly<Record<string, HeaderValue>>): Answer["headers"] {
  return Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((one) => [name, String(one)] as const),
  );
}

type Call = readonly [method: "write" | "end", args: readonly unknown[]];
type Methods = Record<
  "write" | "end" | "writeHead" | "flushHeaders" | "destroy" | "emit",
  (...args: never[]) => unknown
>;

/**
 * Holds back what a handler answers until it is whole, or too long to be kept; then `finish` is asked, and it is sent. Other
 * middleware may have put methods of its own over these, before or after: they stay in place, and let everything pass at the end.
 * Until then the handler does not see that its client has gone: what is piped into a closed response stops, and has no end.
 */
export function holdBack(response: WritableResponse, { held, maxBytes, finish, abandon }: FirstRequest): void {
  const methods = response as unknown as Methods;
  const { write, end, writeHead, flushHeaders, destroy, emit } = methods;
  const before = new Set(response.getHeaderNames());
  const calls: Call[] = [];
  const pieces: Uint8Array[] = [];
  let [bytes, begun, ended, asked, passes, full] = [0, false, false, false, false, false];
  let [closed, destroyed] = [false, response.destroyed];

  const pass = (method: "write" | "end", args: readonly unknown[]): unknown =>
    Reflect.apply(method === "write" ? write : end, response, args);

  const keep = (method: "write" | "end", args: readonly unknown[]): void => {
    // What Node.js would refuse is refused here, where the handler sees it: later nobody would.
    checkStatus(response.statusCode);
    const piece = pieceOf(method, args);
    begun = true;
    const callback = args.findLast((one) => typeof one === "function");
    bytes += piece?.length ?? 0;
    const room = bytes <= maxBytes;
    if (!asked && room && piece !== undefined) pieces.push(piece);
    // Who waits until it is written goes on: before the end, nothing is.
    const told = method === "write" && room && callback !== undefined;
    if (told) process.nextTick(callback);
    calls.push([method, told ? [piece] : [piece, callback].filter((one) => one !== undefined)]);
  };

  const askOnce = (): void => {
    if (asked) return;
    asked = true;
    const body = bytes <= maxBytes ? Buffer.concat(pieces) : null;
    finish({ status: response.statusCode, headers: headersOf(response.getHeaders()), body }).then(send, send);
  };

  const send = (instead: unknown): void => {
    letPass();
    if (isReplacement(instead)) {
      for (const name of response.getHeaderNames()) if (!before.has(name)) response.removeHeader(name);
      sendAnswer(response, instead);
    } else sendCalls();
    tellClosed();
  };

  const tellClosed = (): void => {
    if (closed) Reflect.apply(emit, response, ["close"]);
    closed = false;
  };
  // There may be no answer any more.
  held.signal.addEventListener("abort", tellClosed);

  /** From here on the response says itself how far it is. */
  const letPass = (): void => {
    passes = true;
    for (const name of OWN) Reflect.deleteProperty(response, name);
    Reflect.set(response, "destroyed", destroyed);
  };

  const sendCalls = (): void => {
    let room = true;
    for (const [method, args] of calls.splice(0)) room = pass(method, args) !== false;
    if (full && room && !ended) response.emit("drain");
  };

  methods.writeHead = (...args: unknown[]) => {
    if (passes) return Reflect.apply(writeHead, response, args);
    if (!begun) setHead(response, args);
    begun = true;
    return response;
  };
  methods.flushHeaders = () => {
    if (passes) Reflect.apply(flushHeaders, response, []);
    else begun = true;
  };
  methods.write = (...args: unknown[]) => {
    if (passes) return pass("write", args);
    if (ended) return false;
    keep("write", args);
    if (bytes <= maxBytes) return true;
    full = true;
    askOnce();
    return false;
  };
  methods.end = (...args: unknown[]) => {
    if (passes) return pass("end", args);
    if (ended) return response;
    keep("end", args);
    ended = true;
    askOnce();
    return response;
  };
  methods.destroy = (...args: unknown[]) => {
    // Given up by the handler, or by what it piped: there will be no end. A client that leaves does not call it.
    if (!asked) {
      letPass();
      abandon();
      tellClosed();
    }
    return Reflect.apply(destroy, response, args);
  };
  methods.emit = (...args: unknown[]) => {
    const isEnd = args[0] === "close" || args[0] === "finish";
    if (passes || held.signal.aborted || !isEnd) return Reflect.apply(emit, response, args);
    // HTTP/2 says "finish" too when the client has gone.
    closed = true;
    return true;
  };
  const facts: Record<(typeof OWN)[number], PropertyDescriptor> = {
    // To the handler it looks as if everything had been sent: error handlers go by it.
    headersSent: { get: () => begun },
    writableEnded: { get: () => ended },
    closed: { get: () => false },
    destroyed: { get: () => false, set: (value: boolean) => (destroyed = value) },
  };
  for (const name of OWN) Object.defineProperty(response, name, { configurable: true, ...facts[name] });
}

/** What a response says differently while it is held back. */
const OWN = ["headersSent", "writableEnded", "closed", "destroyed"] as const;

const isReplacement = (value: unknown): value is Answer =>
  typeof value === "object" && value !== null && "status" in value && "body" in value;

/** A copy: the handler may use its buffer again. */
function pieceOf(method: "write" | "end", [chunk, encoding]: readonly unknown[]): Uint8Array | undefined {
  if (typeof chunk === "string") return Buffer.from(chunk, encodingOf(encoding));
  if (chunk instanceof Uint8Array) return Buffer.from(chunk);
  if (method === "end" && (!chunk || typeof chunk === "function")) return undefined;
  throw new TypeError("A body is written in pieces of text or bytes.");
}

function checkStatus(status: number): void {
  if (Number.isInteger(status) && status >= 100 && status <= 999) return;
  throw new RangeError(`Invalid status code: ${status}`);
}

const encodingOf = (encoding: unknown): BufferEncoding =>
  typeof encoding === "string" && Buffer.isEncoding(encoding) ? encoding : "utf8";

/** What `writeHead(status, message?, headers?)` says, without sending it. */
function setHead(response: WritableResponse, [status, ...rest]: readonly unknown[]): void {
  response.statusCode = Number(status);
  const headers = rest.at(-1);
  if (typeof headers !== "object" || headers === null) return;
  const pairs = Array.isArray(headers) ? pairsOf(headers) : Object.entries(headers);
  for (const [name, value] of grouped(pairs as Answer["headers"])) response.setHeader(name, value);
}

/** Names and values in turn, or in pairs. */
function pairsOf(list: readonly unknown[]): (readonly [unknown, unknown])[] {
  if (Array.isArray(list[0])) return list as [unknown, unknown][];
  return Array.from({ length: Math.floor(list.length / 2) }, (_, n) => [list[2 * n], list[2 * n + 1]] as const);
}
