import type { ConnectionOptions } from "node:tls";
import type { Clock, Timer } from "../../../core/clock.js";
import type { AskCredentials } from "../../../engine-kit/credentials.js";
import { secureContextOf } from "../../../engine-kit/tls.js";
import type { Calls, EtcdDriver, WatchStream } from "../driver.js";
import { EtcdError, STATUS } from "../errors.js";
import type { LeaseResponse, WatchRequest, WatchResponse } from "../messages.js";
import { METHODS, type Method, STREAMS } from "./grpc-messages.js";
import type { Grpc, GrpcCall, GrpcClient, GrpcError, GrpcMetadata, GrpcStream } from "./grpc-module.js";
import { noting, type Sockets } from "./grpc-sockets.js";
import { decode, encode } from "./protobuf.js";

export type GrpcSettings = {
  readonly hosts: readonly string[];
  /** Undefined where etcd asks for no user. */
  readonly credentials?: AskCredentials | undefined;
  readonly tls?: ConnectionOptions | undefined;
  readonly clock: Clock;
  readonly callTimeoutMs: number;
};

/** A queue of a hundred thousand waiters. What is longer is no answer to anything that this engine asks. */
const MESSAGE_MAX_BYTES = 64 * 2 ** 20;

/**
 * How many limits a call may last at most. Beyond the first it waits only while the member answers what was asked before it: one
 * that is slow is not left, which would end all that is under way there.
 */
const LIMITS_MAX = 4;

/** One member, as long as it answers. */
type Connection = {
  readonly client: GrpcClient;
  readonly sockets: Sockets;
  /** What ends each stream that stays open. */
  readonly streams: Set<(cause: EtcdError) => void>;
  /** How many calls were made on it, and the newest of them that was answered. */
  asked: number;
  answered: number;
  /** When something was last answered on it: a whole message, or a refusal by etcd itself. */
  heardAt: number;
  /** Whether anything ever was. */
  heard: boolean;
  /** Checks whether it has gone silent; runs while streams are open, on which nothing may be heard for long. */
  silence: Timer | null;
};

/**
 * A thin client: one connection to one member, left for the next when it does not answer. All calls and streams go the same
 * way, so that a member which is cut off from the others shows itself in whatever is asked next. Nothing is sent twice,
 * except what the server refused because its token had run out.
 */
export class GrpcEtcd implements EtcdDriver {
  readonly #grpc: Grpc;
  readonly #settings: GrpcSettings;
  readonly #credentials: () => object;
  /** For all calls: the library takes a copy of it. */
  readonly #bare: GrpcMetadata;
  /** With others to turn to, one member is not waited for as long as a call may take. */
  readonly #limitMs: number;
  #connection: Connection | null = null;
  /** Of connections that were left, until they end. */
  readonly #left = new Map<Timer, Sockets>();
  #next = 0;
  #token: Promise<string> | null = null;
  #closed = false;

  constructor(grpc: Grpc, settings: GrpcSettings) {
    this.#grpc = grpc;
    this.#settings = settings;
    this.#credentials = credentialsOf(grpc, settings.tls);
    this.#bare = bareMetadata(grpc);
    this.#limitMs = settings.hosts.length > 1 ? settings.callTimeoutMs / 3 : settings.callTimeoutMs;
  }

  async call<Name extends keyof Calls>(name: Name, request: Calls[Name][0]): Promise<Calls[Name][1]> {
    return this.#withToken((metadata) => this.#unary(METHODS[name], request, metadata));
  }

  async keepAlive(lease: bigint): Promise<LeaseResponse> {
    return this.#withToken((metadata) => this.#once({ ID: lease }, metadata));
  }

  async watch(heard: (response: WatchResponse) => void, ended: (cause?: Error) => void): Promise<WatchStream> {
    const metadata = await this.#metadata();
    const connection = this.#connect();
    const stream = this.#stream(connection, STREAMS.watch, metadata);
    let open = true;
    const close = (): void => {
      open = false;
      connection.streams.delete(end);
      stream.cancel();
    };
    const end = (cause: EtcdError): void => {
      if (!open) return;
      close();
      ended(cause);
    };
    connection.streams.add(end);
    this.#listenFor(connection);
    stream.on("data", (message) => {
      this.#heard(connection);
      if (open) heard(message as WatchResponse);
    });
    stream.on("error", (error) => {
      const cause = failure(error);
      if (isTokenSpent(cause)) this.#token = null;
      end(cause);
    });
    stream.on("end", () => end(new EtcdError(STATUS.UNAVAILABLE, "the stream ended")));
    return { send: (request: WatchRequest) => open && stream.write(request), close };
  }

  close(): void {
    this.#closed = true;
    if (this.#connection !== null)
      this.#leave(this.#connection, new EtcdError(STATUS.CANCELLED, "the client was closed"));
    for (const [timer, sockets] of this.#left) {
      this.#settings.clock.cancel(timer);
      sockets.destroy();
    }
    this.#left.clear();
  }

  #connect(): Connection {
    if (this.#closed) throw new EtcdError(STATUS.CANCELLED, "the client was closed");
    if (this.#connection === null) {
      const { hosts, tls } = this.#settings;
      const options = {
        // A connection of our own: one that hangs is left together with its socket.
        "grpc.use_local_subchannel_pool": 1,
        "grpc.enable_retries": 0,
        "grpc.max_receive_message_length": MESSAGE_MAX_BYTES,
        ...(tls?.servername === undefined ? {} : { "grpc.ssl_target_name_override": tls.servername }),
      };
      const sockets = noting(this.#credentials());
      const client = new this.#grpc.Client(hosts[this.#next] ?? "", sockets.credentials, options);
      const heardAt = this.#settings.clock.now();
      const nothing = { asked: 0, answered: 0, heardAt, heard: false, silence: null };
      this.#connection = { client, sockets, streams: new Set(), ...nothing };
    }
    return this.#connection;
  }

  #leave(connection: Connection, cause: EtcdError): void {
    if (this.#connection !== connection) return;
    this.#connection = null;
    this.#next = (this.#next + 1) % this.#settings.hosts.length;
    if (connection.silence !== null) this.#settings.clock.cancel(connection.silence);
    for (const end of [...connection.streams]) end(cause);
    connection.client.close();
    this.#end(connection);
  }

  /** The library ends it when its calls have ended, and never when the two sides have lost each other's frames. */
  #end({ sockets, heard }: Connection): void {
    if (this.#closed || !heard) return sockets.destroy();
    // Where something was heard, calls that are under way may still be answered, each within its own time limit.
    const timer = this.#settings.clock.after(this.#limitMs, () => {
      this.#left.delete(timer);
      sockets.destroy();
    });
    this.#left.set(timer, sockets);
  }

  #heard(connection: Connection, call = 0): void {
    connection.answered = Math.max(connection.answered, call);
    connection.heardAt = this.#settings.clock.now();
    connection.heard = true;
  }

  /**
   * A connection may go silent without an end, and whoever only listens would listen for ever. What has said nothing for as long
   * as a call may take is asked something; without an answer that call leaves the connection, as any other would.
   */
  #listenFor(connection: Connection): void {
    const { clock, callTimeoutMs } = this.#settings;
    if (connection.silence !== null || this.#connection !== connection) return;
    const restMs = Math.max(1, connection.heardAt + callTimeoutMs - clock.now());
    connection.silence = clock.after(restMs, () => {
      connection.silence = null;
      if (connection.streams.size === 0 || this.#connection !== connection) return;
      if (clock.now() < connection.heardAt + callTimeoutMs) return this.#listenFor(connection);
      // Whatever is answered: also that one must say who one is.
      const asked = this.#unary(METHODS.memberList, {}, this.#bare).catch(() => {});
      void asked.then(() => {
        if (connection.streams.size > 0) this.#listenFor(connection);
      });
    });
  }

  #unary<T extends object>(method: Method, request: object, metadata: object): Promise<T> {
    const connection = this.#connect();
    return this.#within(connection, (resolve, reject) =>
      connection.client.makeUnaryRequest(
        method.path,
        (message) => encode(method.request, message),
        (bytes) => read(method, bytes),
        request,
        metadata,
        {},
        (error, message) => (error === null ? resolve(message as T) : reject(failure(error))),
      ),
    );
  }

  /** A stream for one question: nothing to keep, nothing to lose. */
  #once(request: object, metadata: object): Promise<LeaseResponse> {
    const connection = this.#connect();
    return this.#within(connection, (resolve, reject) => {
      const stream = this.#stream(connection, STREAMS.leaseKeepAlive, metadata);
      stream.on("data", (message) => {
        resolve(message as LeaseResponse);
        stream.cancel();
      });
      stream.on("error", (error) => reject(failure(error)));
      stream.on("end", () => reject(new EtcdError(STATUS.UNAVAILABLE, "the stream ended without an answer")));
      stream.write(request);
      return stream;
    });
  }

  #stream(connection: Connection, method: Method, metadata: object): GrpcStream {
    return connection.client.makeBidiStreamRequest(
      method.path,
      (message) => encode(method.request, message),
      (bytes) => read(method, bytes),
      metadata,
      {},
    );
  }

  #within<T>(
    connection: Connection,
    start: (resolve: (answer: T) => void, reject: (error: EtcdError) => void) => GrpcCall,
  ): Promise<T> {
    const { clock } = this.#settings;
    const limitMs = this.#limitMs;
    return new Promise((resolve, reject) => {
      const n = (connection.asked += 1);
      const endsAt = clock.now() + LIMITS_MAX * limitMs;
      let settled = false;
      // What comes after the answer is the end of the stream that brought it.
      const settle = (how: () => void): void => {
        if (settled) return;
        settled = true;
        clock.cancel(timer);
        how();
      };
      const fail = (error: EtcdError): void =>
        settle(() => {
          if (this.#isAway(error)) this.#leave(connection, error);
          else this.#heard(connection, n);
          reject(error);
        });
      const look = (): void => {
        // Where a call that was made later was answered this one is lost.
        const slow = n > connection.answered;
        const restMs = Math.min(connection.heardAt + limitMs, endsAt) - clock.now();
        if (slow && restMs > 0) return void (timer = clock.after(restMs, look));
        fail(new EtcdError(STATUS.DEADLINE_EXCEEDED, `no answer within ${Math.round(limitMs)} ms`));
        call.cancel();
      };
      let timer = clock.after(limitMs, look);
      const call = start((answer) => {
        this.#heard(connection, n);
        settle(() => resolve(answer));
      }, fail);
    });
  }

  /** Whether to try elsewhere: it is not etcd that answers, or the member says that it cannot serve and there are others. */
  #isAway({ status, message }: EtcdError): boolean {
    const away: readonly number[] = [STATUS.UNAVAILABLE, STATUS.DEADLINE_EXCEEDED, STATUS.INTERNAL, STATUS.CANCELLED];
    return !message.startsWith("etcdserver:") || (away.includes(status) && this.#settings.hosts.length > 1);
  }

  async #withToken<T>(send: (metadata: object) => Promise<T>): Promise<T> {
    const metadata = await this.#metadata();
    try {
      return await send(metadata);
    } catch (error) {
      // Refused before anything was done: it may be sent again.
      if (this.#settings.credentials === undefined || !isTokenSpent(error)) throw error;
      this.#token = null;
      return send(await this.#metadata());
    }
  }

  async #metadata(): Promise<object> {
    const { credentials } = this.#settings;
    if (credentials === undefined) return this.#bare;
    this.#token ??= this.#authenticate(credentials);
    const metadata = bareMetadata(this.#grpc);
    metadata.set("token", await this.#token);
    return metadata;
  }

  async #authenticate(credentials: AskCredentials): Promise<string> {
    try {
      const { username: name = "", password } = await credentials();
      const request = { name, password };
      const { token } = await this.#unary<{ token: string }>(METHODS.authenticate, request, this.#bare);
      if (token === "") throw new EtcdError(STATUS.INTERNAL, "the answer has no token");
      return token;
    } catch (error) {
      this.#token = null;
      throw error;
    }
  }
}

/** A member without a leader says so at once, instead of serving what is old or hanging. */
function bareMetadata(grpc: Grpc): GrpcMetadata {
  const metadata = new grpc.Metadata();
  metadata.set("hasleader", "true");
  return metadata;
}

function credentialsOf(grpc: Grpc, tls: ConnectionOptions | undefined): () => object {
  if (tls === undefined) return () => grpc.credentials.createInsecure();
  const { rejectUnauthorized, checkServerIdentity } = tls;
  const context = secureContextOf(tls);
  return () =>
    grpc.credentials.createFromSecureContext(context, {
      ...(rejectUnauthorized === undefined ? {} : { rejectUnauthorized }),
      ...(checkServerIdentity === undefined ? {} : { checkServerIdentity }),
    });
}

/** An answer that cannot be read ends its call; so does one without the header that all others have. */
function read({ response }: Method, bytes: Buffer): object {
  const message = decode(response, bytes);
  if ("header" in message && message.header === undefined) throw new Error("the answer has no header");
  return message;
}

/** What the library says of an answer that breaks the protocol. It calls that unimplemented, which is what old servers say. */
const BROKEN_ANSWER = /^(No message received|Too many responses received)$/;

function failure({ code = STATUS.INTERNAL, details, message }: GrpcError): EtcdError {
  const text = details || message;
  return new EtcdError(BROKEN_ANSWER.test(text) ? STATUS.INTERNAL : code, text);
}

function isTokenSpent(error: unknown): boolean {
  return error instanceof EtcdError && /invalid auth token|revision of auth store is old/.test(error.message);
}
