/** The parts of a request of node:http2 that are used here; one of node:http has no stream. */
export interface Http2Request {
  readonly httpVersionMajor: number;
  readonly aborted?: boolean;
  readonly stream?: Http2Stream;
  once?(event: "aborted", listener: () => void): unknown;
}

interface Http2Stream {
  readonly closed?: boolean;
  destroy(): unknown;
  once(event: "close" | "end" | "finish", listener: () => void): unknown;
}

/**
 * Calls back when the stream of a request of HTTP/2 is over. The response does not always say so: a client may close its stream
 * without an error (RST_STREAM with NO_ERROR), and if something waits to be sent there, Node.js (20 to 24) never tells that the response
 * is closed; nor that of a HEAD that was not answered. Nothing is destroyed here: where the server closes the stream itself,
 * Node.js would not tell the client, or loop.
 */
export function onStreamOver(request: Http2Request, over: () => void): void {
  const { httpVersionMajor, stream } = request;
  if (httpVersionMajor !== 2 || stream === undefined) return;
  if (request.aborted === true || stream.closed === true) return over();
  request.once?.("aborted", over);
  // When the response had been ended, that is not said either; but a request whose body nobody has read to its end, is.
  stream.once("end", () => void (stream.closed === true && over()));
  stream.once("close", over);
}
