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
  for (const name of response.getHeaderNames()) if (/^content-|^etag$/.test(name)) response.removeHeader(name);
  response.statusCode = status;
  for (const [name, values] of grouped(headers)) response.setHeader(name, values);
  response.setHeader("Content-Length", String(body.length));
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
type Methods = Record<"write" | "end" | "writeHead" | "flushHeaders", (...args: never[]) => unknown>;

/**
 * Holds back what a handler answers until it is whole, or too long to be kept; then `finish` is asked, and it is sent. Other
 * middleware may have put methods of its own over these, before or after: they stay in place, and let everything pass at the end.
 */
export function holdBack(response: WritableResponse, { maxBytes, finish }: FirstRequest): void {
  const methods = response as unknown as Methods;
  const { write, end, writeHead, flushHeaders } = methods;
  const before = new Set(response.getHeaderNames());
  const calls: Call[] = [];
  const pieces: Uint8Array[] = [];
  let [bytes, begun, ended, asked, passes, full] = [0, false, false, false, false, false];

  const pass = (method: "write" | "end", args: readonly unknown[]): unknown =>
    Reflect.apply(method === "write" ? write : end, response, args);

  const keep = (method: "write" | "end", args: readonly unknown[]): void => {
    begun = true;
    calls.push([method, args]);
    const [chunk, encoding] = args;
    if (typeof chunk !== "string" && !(chunk instanceof Uint8Array)) return;
    const piece = typeof chunk === "string" ? Buffer.from(chunk, encodingOf(encoding)) : chunk;
    bytes += piece.length;
    // Copied: the handler may use its buffer again.
    if (!asked && bytes <= maxBytes) pieces.push(Buffer.from(piece));
  };

  const askOnce = (): void => {
    if (asked) return;
    asked = true;
    const body = bytes <= maxBytes ? Buffer.concat(pieces) : null;
    finish({ status: response.statusCode, headers: headersOf(response.getHeaders()), body }).then(send, send);
  };

  const send = (instead: unknown): void => {
    passes = true;
    // From here on the response says itself how far it is.
    delete (response as { headersSent?: boolean }).headersSent;
    delete (response as { writableEnded?: boolean }).writableEnded;
    if (isReplacement(instead)) {
      for (const name of response.getHeaderNames()) if (!before.has(name)) response.removeHeader(name);
      sendAnswer(response, instead);
      return;
    }
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
  // To the handler it looks as if everything had been sent: error handlers go by it.
  Object.defineProperty(response, "headersSent", { configurable: true, get: () => begun });
  Object.defineProperty(response, "writableEnded", { configurable: true, get: () => ended });
}

const isReplacement = (value: unknown): value is Answer =>
  typeof value === "object" && value !== null && "status" in value && "body" in value;

const encodingOf = (encoding: unknown): BufferEncoding =>
  typeof encoding === "string" && Buffer.isEncoding(encoding) ? encoding : "utf8";

/** What `writeHead(status, message?, headers?)` says, without sending it. */
function setHead(response: WritableResponse, [status, ...rest]: readonly unknown[]): void {
  response.statusCode = Number(status);
  const headers = rest.at(-1);
  if (typeof headers !== "object" || headers === null) return;
  const pairs = Array.isArray(headers) ? pairsOf(headers) : Object.entries(headers);
  for (const [name, value] of pairs) response.setHeader(String(name), value as string);
}

/** Names and values in turn, or in pairs. */
function pairsOf(list: readonly unknown[]): (readonly [unknown, unknown])[] {
  if (Array.isArray(list[0])) return list as [unknown, unknown][];
  return Array.from({ length: Math.floor(list.length / 2) }, (_, n) => [list[2 * n], list[2 * n + 1]] as const);
}
