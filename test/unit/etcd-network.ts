import type {
  Grpc,
  GrpcCall,
  GrpcClient,
  GrpcError,
  GrpcMetadata,
  GrpcStream,
} from "../../src/engines/etcd/drivers/grpc-module.js";
import { settle } from "../../src/testing/fake-clock.js";

/** The library below the driver, without a network: the test decides what is answered, and when. */

export class Metadata implements GrpcMetadata {
  readonly values: Record<string, string> = {};

  set(key: string, value: string): void {
    this.values[key] = value;
  }
}

/** One call, or one stream, as the driver made it. */
export class Call implements GrpcCall {
  cancelled = 0;
  readonly written: object[] = [];
  readonly #on: { data?: (message: object) => void; error?: (error: GrpcError) => void; end?: () => void } = {};

  constructor(
    readonly path: string,
    readonly metadata: Metadata,
    readonly message: object,
    readonly settle: (error: GrpcError | null, message?: object) => void,
  ) {}

  answer(message: object = {}): void {
    this.settle(null, message);
  }

  refuse(code: number, details: string): void {
    this.settle({ code, details, message: `${code} ${details}` });
  }

  /** As the library does, which says so later, and once. */
  cancel(): void {
    this.cancelled += 1;
    if (this.cancelled > 1) return;
    const cancelled = { code: 1, details: "Cancelled on client", message: "1 CANCELLED" };
    queueMicrotask(() => this.#on.error?.(cancelled));
    queueMicrotask(() => this.settle(cancelled));
  }

  say(message: object): void {
    this.#on.data?.(message);
  }

  fail(code: number, details: string): void {
    this.#on.error?.({ code, details, message: details });
  }

  end(): void {
    this.#on.end?.();
  }

  get stream(): GrpcStream {
    const stream: GrpcStream = {
      write: (message) => void this.written.push(message),
      cancel: () => this.cancel(),
      on: (event: "data" | "error" | "end", run: never) => {
        this.#on[event] = run;
        return stream;
      },
    };
    return stream;
  }
}

/** What the library calls the step at which a socket is secured. */
export const STEP = "_createSecureConnector";
export type Credentials = { readonly [STEP]?: () => { connect(socket: Socket): unknown } };

export class Socket {
  destroyed = 0;
  #closed = (): void => {};

  destroy(): void {
    this.destroyed += 1;
  }

  once(_: "close", listener: () => void): void {
    this.#closed = listener;
  }

  close(): void {
    this.#closed();
  }
}

/** A channel to one member. */
export class Channel implements GrpcClient {
  readonly calls: Call[] = [];
  readonly streams: Call[] = [];
  closed = 0;

  constructor(
    readonly address: string,
    readonly credentials: Credentials,
    readonly options: Readonly<Record<string, unknown>>,
  ) {}

  makeUnaryRequest(...[path, serialize, , message, metadata, , settle]: Parameters<GrpcClient["makeUnaryRequest"]>) {
    serialize(message);
    const call = new Call(path, metadata as Metadata, message, settle);
    this.calls.push(call);
    return call;
  }

  makeBidiStreamRequest(...[path, , , metadata]: Parameters<GrpcClient["makeBidiStreamRequest"]>): GrpcStream {
    const call = new Call(path, metadata as Metadata, {}, () => {});
    this.streams.push(call);
    return call.stream;
  }

  /** It has connected: this is its socket. */
  connects(): Socket {
    const socket = new Socket();
    this.credentials[STEP]?.().connect(socket);
    return socket;
  }

  close(): void {
    this.closed += 1;
  }
}

export function networkOf(): { readonly grpc: Grpc; readonly channels: Channel[]; readonly verified: object[] } {
  const channels: Channel[] = [];
  /** How each secure connection is to check who answers. */
  const verified: object[] = [];
  const credentials = () => ({ [STEP]: () => ({ connect: () => {} }) });
  const grpc = {
    Client: class extends Channel {
      constructor(...args: ConstructorParameters<typeof Channel>) {
        super(...args);
        channels.push(this);
      }
    },
    Metadata,
    credentials: {
      createInsecure: credentials,
      createFromSecureContext: (_: object, verify: object) => {
        verified.push(verify);
        return credentials();
      },
    },
  };
  return { grpc: grpc as unknown as Grpc, channels, verified };
}

/** What a promise has come to by now: in these tests nothing takes time. */
export function soon(promise: Promise<unknown>): Promise<unknown> {
  const come = promise.catch((error: unknown) => error);
  return Promise.race([come, settle().then(() => "nothing yet")]);
}
