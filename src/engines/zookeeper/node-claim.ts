// Beyond the common files of an engine: the node of a claim, although the answer to any call may be lost.

import type { ClaimRequest, EngineEvent } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import { LocalClaim, LocalClaims } from "../../queue/local-claims.js";
import type { Seen } from "../../queue/turns.js";
import { CODE, hasCode, isRefused } from "./errors.js";
import type { PredecessorWatch } from "./events.js";
import { entryOf, nodePrefix, sequenceText } from "./node-names.js";
import { contentBytes, type NodeQueue, type Nodes } from "./nodes.js";

export type Found = Seen & { readonly queue: NodeQueue };

/** A claim of this client, and how its node is created, replaced and removed although any answer may be lost. */
export class NodeClaim extends LocalClaim {
  readonly request: ClaimRequest;
  /** Null until a server said where it is. */
  path: string | null = null;
  /** Its name in the folder. */
  override key = "";
  units: number;
  /** Checked against tombstones, copies and the capacity. */
  admitted = false;
  /** When the first call asked for it: the lease counts from there. */
  askedAt = Infinity;
  /** The first of all: whoever holds beside it came later. */
  oldest = false;
  predecessor: PredecessorWatch | null = null;
  /** Of its node's data, as it was last seen: others change it to tell whoever watches it. */
  version = 0;
  /** How many requests to watch its node are under way. */
  asking = 0;
  /** How many changes of its node were told. */
  changes = 0;
  /** Told of changes of its node. */
  ownChanged: (() => void) | null = null;
  readonly #nodes: Nodes;
  /** A node was asked for. Whether it exists is not known while there is no path. */
  #asked = false;
  /** Where it is instead if it was replaced by a call whose answer was lost. */
  #perhapsAt: string | null = null;
  #isWatched = false;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(nodes: Nodes, request: ClaimRequest) {
    super(request, Infinity);
    this.#nodes = nodes;
    this.request = request;
    this.units = request.units;
    this.exact = request.exact === true;
    this.made = true;
  }

  /** The next change of its node will be told. */
  get isWatched(): boolean {
    return this.#isWatched;
  }

  set isWatched(isWatched: boolean) {
    this.#isWatched = isWatched;
    if (this.path !== null) this.#nodes.watched(this.path, isWatched);
  }

  /** One thing at a time: an answer that comes late must not undo what came after it. */
  inTurn<T>(run: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(run);
    this.#turn = done.catch(() => {});
    return done;
  }

  /** A grant may have another node by now, which replaced the one that this client knows. */
  seenIn(queue: NodeQueue): Found {
    this.oldest ||= queue.entries[0]?.key === this.key;
    return { queue, own: queue.find(this.key) ?? (this.granted ? queue.byId(this.id) : undefined) };
  }

  /** Creates its node, unless it is there. The queue with it, and whether it was released before it came. */
  async append(): Promise<readonly [NodeQueue, buried: boolean]> {
    const { name, id, units, capacity } = this.request;
    if (this.path === null && !this.#asked) {
      this.#asked = true;
      const prefix = nodePrefix(this.#nodes.names, id, units, capacity);
      const { created, queue, buried } = await this.#nodes.append(this.request, prefix, contentBytes(this.request));
      this.#isAt(created.path.slice(this.#nodes.pathOf(name).length + 1), created.czxid);
      return this.#checked(await queue, await buried);
    }
    const asking = this.path === null ? this.#recover() : this.#nodes.queueNow(name);
    const [queue, buried] = await Promise.all([asking, this.#nodes.hasTombstone(name, id)]);
    if (this.path !== null) return [queue, buried];
    this.#asked = false;
    return this.append();
  }

  /** Where a queue that was not read shows that it is not to be had, it is read: what it says of others has to be so now. */
  async #checked(queue: NodeQueue, buried: boolean): Promise<readonly [NodeQueue, buried: boolean]> {
    const { name, wait, capacity } = this.request;
    const own = queue.find(this.key);
    const taken = queue.limit !== capacity || (!wait && own !== undefined && !queue.holds(own));
    return [taken && !queue.wasRead ? await this.#nodes.sharedQueue(name) : queue, buried];
  }

  /**
   * The same position for fewer units: a node whose name says so, with the token of the grant. "found": that was done
   * before, by a call whose answer was lost.
   */
  async shrink(units: number): Promise<"done" | "found" | "gone"> {
    if (this.path === null) return "gone";
    const { name, id, capacity } = this.request;
    const key = nodePrefix(this.#nodes.names, id, units, capacity) + sequenceText(entryOf(this.key)?.order ?? 0);
    const to = this.#nodes.nodePath(name, key);
    this.#perhapsAt = to;
    let outcome: "done" | "found" = "done";
    try {
      await this.#nodes.replace(this.path, to, contentBytes(this.request, this.token));
    } catch (error) {
      if (!hasCode(error, CODE.nodeExists, CODE.noNode)) throw error;
      const queue = await this.#nodes.queueNow(name);
      // Released by somebody else meanwhile, who may not have seen the new node.
      if (queue.find(key) === undefined || (await this.#nodes.hasTombstone(name, id))) {
        await this.remove();
        return "gone";
      }
      outcome = "found";
    }
    this.#perhapsAt = null;
    this.units = units;
    this.#isAt(key, this.token);
    return outcome;
  }

  /** Whether the claim is lost if nothing is at this path. */
  isOnlyAt(path: string): boolean {
    return this.path === path && this.#perhapsAt === null;
  }

  /** Wherever it may be. False when it was not there. */
  async remove(): Promise<boolean> {
    if (this.path === null && this.#asked) await this.#recover();
    const paths = [this.path, this.#perhapsAt].filter((path) => path !== null);
    const removed = await Promise.all(paths.map((path) => this.#nodes.remove(path)));
    return removed.includes(true);
  }

  /**
   * The answer to our creation was lost: find the node by its id, and by its session where others may claim with that id, too.
   * A write comes first. The leader decides it after everything that this session asked for before, so what the queue does not
   * show then will never be there.
   */
  async #recover(): Promise<NodeQueue> {
    const { name, id } = this.request;
    const queue = await this.#nodes.queueNow(name);
    const { session } = this.#nodes;
    for (const { key } of queue.entries.filter((entry) => entry.id === id)) {
      const node = await session.read((client) => client.get(this.#nodes.nodePath(name, key)));
      if (node?.stat.ephemeralOwner === session.client.sessionId) this.#isAt(key, node.stat.czxid);
    }
    return queue;
  }

  #isAt(key: string, token: number): void {
    this.isWatched = false;
    this.path = this.#nodes.nodePath(this.name, key);
    this.key = key;
    this.token = token;
    this.version = 0;
    this.#nodes.knowOwn(this.request, key, token);
  }
}

/**
 * A session carries many claims and ends only when the whole client is gone, so the lease of a claim is kept here: when it ends,
 * its node is removed.
 */
export class NodeClaims extends LocalClaims<NodeClaim> {
  readonly #nodes: Nodes;

  constructor(nodes: Nodes, tell: (event: EngineEvent) => void) {
    super(nodes.session.clock, tell);
    this.#nodes = nodes;
  }

  /** Once its node is there its lease counts, and somebody may remove it. */
  appended(claim: NodeClaim): void {
    if (claim.over || claim.path === null) return;
    if (claim.endsAt === Infinity) this.endAt(claim, claim.askedAt + waiterLeaseMs(claim.request.leaseMs));
    this.watchLater(claim, () => this.watchOwn(claim));
  }

  /** To be told when somebody else removes its node, which was created, changed or removed just now. */
  watchOwn(claim: NodeClaim): void {
    if (claim.over || claim.isWatched) return;
    claim.asking += 1;
    void claim.inTurn(() => this.#watchOwn(claim)).finally(() => (claim.asking -= 1));
  }

  override forget(claim: NodeClaim): void {
    claim.isWatched = false;
    super.forget(claim);
  }

  protected override remove(claim: NodeClaim): Promise<boolean> {
    return claim
      .inTurn(() => claim.remove())
      .catch((cause: unknown) => {
        // A server that will not have it removed will not be asked again.
        if (!isRefused(cause, true)) throw cause;
        return false;
      });
  }

  protected override isHeard({ isWatched, asking }: NodeClaim): boolean {
    return isWatched || asking > 0;
  }

  protected override unwatch({ predecessor }: NodeClaim): void {
    predecessor?.stop();
  }

  #seen(claim: NodeClaim, version: number): void {
    if (version === claim.version) return;
    claim.version = version;
    this.changed(claim);
  }

  async #watchOwn(claim: NodeClaim): Promise<void> {
    const { path } = claim;
    if (path === null || claim.over || claim.isWatched) return;
    const changed = (claim.ownChanged ??= () => {
      claim.changes += 1;
      claim.isWatched = false;
      this.watchOwn(claim);
    });
    const { changes } = claim;
    try {
      const { session } = this.#nodes;
      const stat = await session.read((client) => client.exists(path, changed));
      // It may have changed again before this was read here.
      claim.isWatched = stat !== null && claim.changes === changes && claim.path === path && !claim.over;
      if (stat !== null) return this.#seen(claim, stat.version);
      // Its creation, which that watch would tell of, is nothing to wait for.
      session.client.unwatch(path, changed);
      if (claim.isOnlyAt(path)) this.lose(claim);
    } catch {
      // The next heartbeat tells.
      this.unheard(claim);
    }
  }
}
