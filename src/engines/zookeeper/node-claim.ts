// Beyond the common files of an engine: one claim of this client, which all verbs work on.

import type { Timer } from "../../core/clock.js";
import type { ClaimRequest, EngineEvent, Granted } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import { LocalClaim, type LocalClaims } from "../../queue/local-claims.js";
import { awaitTurn, Lookups, type QueueStore, type Seen } from "../../queue/lookups.js";
import type { QueueEntry } from "../../queue/queue.js";
import { fenceOf, queuedOf } from "./answers.js";
import { ClaimNode } from "./claim-node.js";
import { isRefused } from "./errors.js";
import { PredecessorWatch } from "./events.js";
import type { NodeQueue, Nodes } from "./nodes.js";

const REMOVE_AGAIN_MS = 500;
/** Most claims are over before anybody could have removed their node. */
const WATCH_SELF_AFTER_MS = 100;

type Found = Seen<QueueEntry> & { readonly queue: NodeQueue };

/**
 * One claim of this client, which all verbs work on. A session carries many claims and ends
 * only when the whole client is gone, so the lease of a claim is kept here: when it ends, its node is removed.
 */
export class NodeClaim extends LocalClaim implements QueueStore<NodeClaim, QueueEntry, Found> {
  readonly request: ClaimRequest;
  readonly node: ClaimNode;
  readonly predecessor: PredecessorWatch;
  units: number;
  /** Checked against tombstones, copies and the capacity. */
  admitted = false;
  /** Its node is being removed. */
  leaving = false;
  /** When the first call asked for it: the lease counts from there. */
  askedAt = Infinity;
  /** The first of all: whoever holds beside it came later. */
  #oldest = false;
  readonly #nodes: Nodes;
  readonly #claims: LocalClaims<NodeClaim>;
  readonly #tell: (event: EngineEvent) => void;
  readonly #lookups = new Lookups<NodeClaim>(() => this.#lookUp());
  #watchingSelf: Timer | null = null;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(nodes: Nodes, claims: LocalClaims<NodeClaim>, tell: (event: EngineEvent) => void, request: ClaimRequest) {
    super(request, Infinity);
    this.#nodes = nodes;
    this.#claims = claims;
    this.#tell = tell;
    this.request = request;
    this.units = request.units;
    this.node = new ClaimNode(nodes, request);
    this.predecessor = new PredecessorWatch(nodes, request.name, () => void this.#lookups.request(this));
  }

  /** One thing at a time: an answer that comes late must not undo what came after it. */
  inTurn<T>(run: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(run);
    this.#turn = done.catch(() => {});
    return done;
  }

  /** Once its node is there its lease counts, and somebody may remove it. */
  appended(): void {
    if (this.over || this.node.path === null) return;
    if (this.endsAt === Infinity) this.endAt(this.askedAt + waiterLeaseMs(this.request.leaseMs));
    this.#watchingSelf ??= this.#nodes.session.clock.after(WATCH_SELF_AFTER_MS, this.selfChanged);
  }

  endAt(at: number): void {
    this.#claims.endAt(this, at);
  }

  /** Whether the queue has to be read to renew it: to see its turn, or the oldest token beside its own. */
  get needsQueue(): boolean {
    return !this.granted || !this.#oldest || this.request.exact === true;
  }

  /** Until it holds, or a watch is set that will tell. Null: it is gone. */
  awaitTurn(queue?: NodeQueue): Promise<Found | null> {
    return awaitTurn<NodeClaim, QueueEntry, Found>(this, this, queue && this.#found(queue));
  }

  /** It waits: whether all that it waits for is watched is looked up where that is not certain. */
  keepWatching(queue: NodeQueue, own: QueueEntry): void {
    if (!this.predecessor.covers(queue, own)) void this.#lookups.request(this);
  }

  async list(): Promise<Found> {
    return this.#found(await this.#nodes.queueForAll(this.name));
  }

  async watch(_: NodeClaim, { queue, own }: Found): Promise<Found | null> {
    if (own === undefined) return null;
    // What the answer will say of the holders is read in the same round trip.
    queuedOf(this.#nodes, this.name, queue, own).catch(() => {});
    const newer = await this.predecessor.watch(queue, own);
    return newer && this.#found(newer);
  }

  /** Its turn. After waiting the lease stays as it is until it is confirmed. */
  grant(_: NodeClaim, { queue, own }: Found): void {
    if (this.granted || own === undefined) return;
    this.granted = true;
    this.predecessor.stop();
    if (queue.mustTouch(own)) this.node.touch();
  }

  /** Its node was removed by somebody else. */
  lose(): void {
    if (this.over || this.leaving) return;
    this.finish();
    this.#tellOf("lost");
  }

  async grantedAnswer(queue: NodeQueue | null, calledAt: number): Promise<Granted> {
    const { name, exact } = this.request;
    if (queue?.entries[0]?.key === this.node.key) this.#oldest = true;
    const fence = await fenceOf(this.#nodes, { name, exact }, await this.node.token(), queue?.holders ?? []);
    const until = Math.min(this.endsAt, this.#nodes.session.until);
    return { kind: "granted", leftMs: Math.max(0, until - calledAt), ...fence };
  }

  /** Its node is gone with the session. */
  end(): void {
    if (this.over) return;
    this.finish();
    this.#tellOf(this.granted ? "lost" : "wake");
  }

  /** No heartbeat came, or none will: its node is removed as soon as a server can be told. */
  expire(): void {
    if (this.over) return;
    this.leaving = true;
    this.finish();
    const { session } = this.#nodes;
    const remove = (): Promise<unknown> => this.inTurn(() => this.node.remove()).catch(again);
    const again = (cause: unknown) => (isRefused(cause, true) ? null : session.afterwards(REMOVE_AGAIN_MS, remove));
    void remove();
  }

  finish(): void {
    this.over = true;
    if (this.#watchingSelf !== null) this.#nodes.session.clock.cancel(this.#watchingSelf);
    this.predecessor.stop();
    this.#claims.delete(this);
  }

  #found(queue: NodeQueue): Found {
    return { queue, own: queue.find(this.node.key) };
  }

  /** What cannot be learned now is asked, and watched again, with the next heartbeat. */
  #lookUp(): Promise<void> {
    return this.inTurn(async () => {
      if (this.granted || this.over || this.leaving || this.node.path === null) return;
      const found = await this.awaitTurn();
      if (found === null || !this.granted) return;
      const { leftMs: _, ...grant } = await this.grantedAnswer(found.queue, this.#nodes.session.clock.now());
      // The core counts from the last heartbeat, as long as a waiter's lease; may it, by what is known of the session?
      if (this.endsAt > this.#nodes.session.until) this.#tellOf("wake");
      else this.#tell({ ...grant, name: this.name, id: this.id });
    }).catch(() => this.predecessor.stop());
  }

  /** To be told when somebody else removes its node. */
  async #watchSelf(): Promise<void> {
    const { path } = this.node;
    if (path === null || this.over || this.leaving) return;
    try {
      const { session } = this.#nodes;
      if ((await session.read((client) => client.exists(path, this.selfChanged))) !== null) return;
      // Its creation, which that watch would tell of, is nothing to wait for.
      session.client.unwatch(path, this.selfChanged);
      if (this.node.isOnlyAt(path)) this.lose();
    } catch {
      // The next heartbeat tells.
    }
  }

  /** Its node was created, changed or removed. */
  readonly selfChanged = (): void => {
    if (!this.over && !this.leaving) void this.inTurn(() => this.#watchSelf());
  };

  #tellOf(kind: "lost" | "wake"): void {
    this.#tell({ kind, name: this.name, id: this.id });
  }
}
