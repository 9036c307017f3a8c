/** The parts of a request of node:http2 that are used here; one of node:http has no stream. */
export interface Http2Request {
  readonly httpVersionMajor: number;
  readonly aborted?: boolean;
  readonly stream?: { destroy(): unknown };
  once?(event: "aborted", listener: () => void): unknown;
}

/**
 * A client may close its stream without an error (RST_STREAM with NO_ERROR). If something still waits to be sent there, Node.js
 * says that the request was aborted, and never that its response is closed: whoever waits for that, handler or framework, waits
 * for ever. A stream that is destroyed is told to all of them.
 */
export function closeWhenAborted(request: Http2Request): void {
  if (request.httpVersionMajor !== 2) return;
  const close = (): void => void request.stream?.destroy();
  if (request.aborted === true) close();
  else request.once?.("aborted", close);
}
