import type { Clock, Timer } from "../../core/clock.js";
import { CODE, hasCode, type SessionEvent, type ZooKeeperClient } from "./client.js";

/** A server that follows passes on that a session lives when the leader asks, twice a tick; a session lasts two ticks at least. */
const PASSED_ON = 1 / 4;
/** How often to show a heartbeat: two of them may be late before the oldest is too old to be of use. */
const BEAT = 1 / 6;
/** Heartbeats that are not proven yet. */
const SIGNS_MAX = 32;

/** What a server says no to has been decided all the same: by the leader, with a majority. */
const DECIDED: readonly number[] = [
  CODE.noNode,
  CODE.noAuth,
  CODE.badVersion,
  CODE.noChildrenForEphemerals,
  CODE.nodeExists,
  CODE.notEmpty,
  CODE.invalidAcl,
  CODE.quotaExceeded,
];

type Sign = { readonly sentAt: number; readonly answeredAt: number };

/**
 * Until when the leader keeps our session, by our own clock.
 *
 * A server that is cut off from the leader goes on answering pings and reads for seconds after the leader has ended the
 * session (`pitfalls.md` 51). So an answer proves nothing by itself. A *write* that is confirmed proves that this server
 * had the leader's ear then, and therefore that the leader knows of every heartbeat that the server had from us well
 * before. The deadline counts from the last such sign: the last but one, in other words, of two that are far enough apart.
 */
export class Session {
  readonly client: ZooKeeperClient;
  readonly clock: Clock;
  readonly #onEnd: () => void;
  readonly #onReturn: () => void;
  readonly #onWarning: (message: string) => void;
  readonly #beatPath: string;
  #signs: Sign[] = [];
  /** The newest heartbeat that the leader is known to have heard of. */
  #heardOf = -Infinity;
  #connected = false;
  /** One more with each connection: what one of them answered says nothing about another. */
  #epoch = 0;
  #beat: Timer | null = null;
  readonly #later = new Set<Timer>();
  #closed = false;

  constructor(
    client: ZooKeeperClient,
    clock: Clock,
    beatPath: string,
    onEnd: () => void,
    onReturn: () => void,
    onWarning: (message: string) => void = () => {},
  ) {
    this.client = client;
    this.clock = clock;
    this.#beatPath = beatPath;
    this.#onEnd = onEnd;
    this.#onReturn = onReturn;
    this.#onWarning = onWarning;
  }

  start(): Promise<void> {
    return this.client.start((event) => this.#told(event));
  }

  get timeoutMs(): number {
    return this.client.sessionTimeoutMs;
  }

  /** The leader does not end the session before this. */
  get until(): number {
    return this.#heardOf + this.timeoutMs;
  }

  async read<T>(call: (client: ZooKeeperClient) => Promise<T>): Promise<T> {
    const [epoch, sentAt] = [this.#epoch, this.clock.now()];
    const answer = await call(this.client);
    this.#answered(epoch, sentAt, false);
    return answer;
  }

  async write<T>(call: (client: ZooKeeperClient) => Promise<T>): Promise<T> {
    const [epoch, sentAt] = [this.#epoch, this.clock.now()];
    try {
      const answer = await call(this.client);
      this.#answered(epoch, sentAt, true);
      return answer;
    } catch (error) {
      if (hasCode(error, ...DECIDED)) this.#answered(epoch, sentAt, true);
      throw error;
    }
  }

  /** Something that may be left undone: a session that ends takes its nodes along. */
  afterwards(ms: number, run: () => Promise<unknown>): void {
    if (this.#closed) return;
    const timer = this.clock.after(ms, () => {
      this.#later.delete(timer);
      run().catch(() => {});
    });
    this.#later.add(timer);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#rest();
    for (const timer of this.#later) this.clock.cancel(timer);
    this.#later.clear();
    await this.client.close();
  }

  #told(event: SessionEvent): void {
    if (this.#closed) return;
    if (event.kind === "warning") return this.#onWarning(event.message);
    this.#epoch += 1;
    this.#signs = [];
    this.#connected = event.kind === "connected";
    this.#rest();
    if (event.kind === "ended") {
      this.#heardOf = -Infinity;
      this.#onEnd();
    }
    if (event.kind !== "connected") return;
    // A new session is itself something that a majority decided. Before a server resumes one it asks the leader, who counts
    // the session's time anew; so any write on this connection proves that it was the leader of a majority who said so, for
    // a server that gets another leader ends its connections.
    if (event.fresh) this.#heardOf = event.sentAt;
    this.#signs.push({ sentAt: event.sentAt, answeredAt: -Infinity });
    this.#beatLater();
    this.#onReturn();
  }

  #answered(epoch: number, sentAt: number, decided: boolean): void {
    if (epoch !== this.#epoch || !this.#connected) return;
    const passedOnMs = this.timeoutMs * PASSED_ON;
    if (decided) {
      const proven = this.#signs.findLastIndex((sign) => sign.answeredAt + passedOnMs <= sentAt);
      if (proven >= 0) this.#heardOf = Math.max(this.#heardOf, this.#signs[proven]?.sentAt ?? 0);
      this.#signs.splice(0, proven + 1);
    }
    // Many of them in a short time are worth no more than one.
    const last = this.#signs.at(-1);
    if (last !== undefined && sentAt - last.sentAt < this.timeoutMs / SIGNS_MAX) return;
    this.#signs.push({ sentAt, answeredAt: this.clock.now() });
    if (this.#signs.length > SIGNS_MAX) this.#signs.shift();
  }

  #beatLater(): void {
    this.#beat = this.clock.after(this.timeoutMs * BEAT, () => {
      // Whether it is answered is seen by whoever needs it; a lost connection is told elsewhere.
      this.read((client) => client.exists(this.#beatPath)).catch(() => {});
      this.#beatLater();
    });
  }

  #rest(): void {
    if (this.#beat !== null) this.clock.cancel(this.#beat);
    this.#beat = null;
  }
}
