import { type Http2Request, onStreamOver } from "../http2.js";

/** When a request is over: its response has been sent, or its client has gone. Told once. */
export class RequestEnd {
  #listeners: ((answered: boolean) => void)[] = [];
  #answered: boolean | undefined;

  get isOver(): boolean {
    return this.#answered !== undefined;
  }

  /** Called at once when it is over already. */
  on(listener: (answered: boolean) => void): void {
    if (this.#answered === undefined) this.#listeners.push(listener);
    else listener(this.#answered);
  }

  /** `answered`: the handler had ended its response. */
  end(answered: boolean): void {
    if (this.#answered !== undefined) return;
    this.#answered = answered;
    for (const listener of this.#listeners) listener(answered);
    this.#listeners = [];
  }
}

interface Closing {
  once(event: "close", listener: () => void): unknown;
  removeListener(event: "close", listener: () => void): unknown;
  readonly destroyed?: boolean;
}

/** The parts of node:http that are used; the requests and responses of Express are such. */
export interface NodeRequest extends Http2Request {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly socket: Closing;
}
export interface NodeResponse extends Closing {
  readonly closed?: boolean;
  readonly writableEnded: boolean;
}

/** The end of a request of node:http. */
export function endOfNode(request: NodeRequest, response: NodeResponse): RequestEnd {
  const end = new RequestEnd();
  const { socket } = request;
  // The client may have left while the body was read: then nothing is told any more.
  if (response.closed === true || response.destroyed === true || socket.destroyed === true) {
    end.end(false);
    return end;
  }
  const closed = (): void => {
    forget();
    response.removeListener("close", closed);
    end.end(response.writableEnded);
  };
  // A response that waits behind another one of its connection (pipelining) has no socket yet, and is told of no end.
  const forget = request.httpVersionMajor === 1 ? onceClosed(socket, closed) : () => {};
  response.once("close", closed);
  onStreamOver(request, closed);
  // It has been sent. The client need not have sent all of its request: the stream stays open then.
  if (request.httpVersionMajor === 2) request.stream?.once("finish", () => void (response.writableEnded && closed()));
  return end;
}

const waiting = new WeakMap<object, Set<() => void>>();

/** One listener for each socket, however many requests it brings: Node.js warns of a leak from the eleventh on. */
function onceClosed(socket: Closing, listener: () => void): () => void {
  const known = waiting.get(socket);
  const listeners = known ?? new Set();
  if (known === undefined) {
    waiting.set(socket, listeners);
    socket.once("close", () => {
      for (const one of [...listeners]) one();
    });
  }
  listeners.add(listener);
  return () => listeners.delete(listener);
}
