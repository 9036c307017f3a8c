// Beyond the common files of an engine: the node of a claim, although the answer to any call may be lost.

import type { ClaimRequest } from "../../core/engine.js";
import { CODE, hasCode } from "./errors.js";
import { entryOf, nodePrefix, sequenceText } from "./node-names.js";
import { contentBytes, type NodeQueue, type Nodes } from "./nodes.js";

/** The node of one claim, how it is created, replaced and removed although any answer may be lost. */
export class ClaimNode {
  /** Null until a server said where it is. */
  path: string | null = null;
  /** Its name in the folder. */
  key = "";
  readonly #request: ClaimRequest;
  readonly #nodes: Nodes;
  #token = 0;
  /** A node was asked for. Whether it exists is not known while there is no path. */
  #asked = false;
  /** Where it is instead if it was replaced by a call whose answer was lost. */
  #perhapsAt: string | null = null;

  constructor(nodes: Nodes, request: ClaimRequest) {
    this.#nodes = nodes;
    this.#request = request;
  }

  /** Creates it, unless it is there, and reads the queue with it. */
  async append(): Promise<NodeQueue> {
    const { name, id, units, capacity } = this.#request;
    if (this.path !== null) return this.#nodes.queueNow(name);
    if (this.#asked) {
      const queue = await this.#recover();
      if (this.path !== null) return queue;
    }
    this.#asked = true;
    const prefix = nodePrefix(this.#nodes.names, id, units, capacity);
    const { created, queue } = await this.#nodes.append(name, prefix, contentBytes(this.#request));
    this.#isAt(created.path, created.path.slice(this.#nodes.pathOf(name).length + 1), created.czxid);
    return queue;
  }

  /**
   * The same position for fewer units: a node whose name says so, with the token of the grant. "found": that was done
   * before, by a call whose answer was lost.
   */
  async shrink(units: number): Promise<"done" | "found" | "gone"> {
    if (this.path === null) return "gone";
    const { name, id, capacity } = this.#request;
    const key = nodePrefix(this.#nodes.names, id, units, capacity) + sequenceText(entryOf(this.key)?.order ?? 0);
    const [from, to, token] = [this.path, this.#nodes.nodePath(name, key), await this.token()];
    this.#perhapsAt = to;
    let outcome: "done" | "found" = "done";
    try {
      await this.#nodes.replace(from, to, contentBytes(this.#request, token));
    } catch (error) {
      if (!hasCode(error, CODE.nodeExists, CODE.noNode)) throw error;
      const queue = await this.#nodes.queueNow(name);
      // Released by somebody else meanwhile, who may not have seen the new node.
      if (queue.find(key) === undefined || queue.hasTombstone(id)) {
        await this.remove();
        return "gone";
      }
      outcome = "found";
    }
    this.#perhapsAt = null;
    this.#isAt(to, key, token);
    return outcome;
  }

  /** Whether the claim is lost if nothing is at this path. */
  isOnlyAt(path: string): boolean {
    return this.path === path && this.#perhapsAt === null;
  }

  async token(): Promise<number> {
    const entry = entryOf(this.key);
    if (this.#token === 0 && entry !== null) {
      this.#token = (await this.#nodes.know(this.#request.name, entry))?.token ?? 0;
      if (this.#token === 0) throw new Error(`the node of ${this.#request.id} is not there`);
    }
    return this.#token;
  }

  /** Lets whoever watches it see a change. */
  touch(): void {
    const { path } = this;
    if (path === null) return;
    // A watcher that is not told finds out by its own heartbeats.
    this.#nodes.session.write((client) => client.set(path, contentBytes(this.#request))).catch(() => {});
  }

  /** Wherever it may be. False when it was not there. */
  async remove(): Promise<boolean> {
    if (this.path === null && this.#asked) await this.#recover();
    const paths = [this.path, this.#perhapsAt].filter((path) => path !== null);
    const removed = await Promise.all(paths.map((path) => this.#nodes.remove(path)));
    return removed.includes(true);
  }

  /**
   * The answer to our creation was lost: find the node by its id. A write comes first. The leader decides it after
   * everything that this session asked for before, so what the queue does not show then will never be there.
   */
  async #recover(): Promise<NodeQueue> {
    const { name, id } = this.#request;
    const queue = await this.#nodes.queueNow(name);
    const own = queue.byId(id);
    if (own !== undefined) this.#isAt(this.#nodes.nodePath(name, own.key), own.key, 0);
    return queue;
  }

  #isAt(path: string, key: string, token: number): void {
    this.path = path;
    this.key = key;
    this.#token = token;
    if (token > 0) this.#nodes.knowOwn(this.#request, key, token);
  }
}
