import type { ClaimRequest } from "../../core/engine.js";
import { CODE, hasCode } from "./client.js";
import type { Hall } from "./hall.js";
import type { Line } from "./line.js";
import { entryOf, nodePrefix, sequenceText } from "./names.js";
import { contentBytes, type Store } from "./store.js";

/** The node of one claim: how it comes, gives way to a smaller one and goes, although any answer may be lost. */
export class Place {
  /** Null until a server said where it is. */
  path: string | null = null;
  /** Its name in the folder. */
  node = "";
  readonly #claim: ClaimRequest;
  readonly #hall: Hall;
  readonly #store: Store;
  #token = 0;
  /** A node was asked for. Whether it exists is not known while there is no path. */
  #asked = false;
  /** Where it is instead if it was replaced by a call whose answer was lost. */
  #perhapsAt: string | null = null;

  constructor(hall: Hall, claim: ClaimRequest) {
    this.#hall = hall;
    this.#store = hall.store;
    this.#claim = claim;
  }

  /** Takes it, and tells the line with it in it. */
  async take(): Promise<Line> {
    const { name, id, units, capacity } = this.#claim;
    if (this.path !== null) return this.#store.lineNow(name);
    if (this.#asked) {
      const line = await this.#recover();
      if (this.path !== null) return line;
    }
    this.#asked = true;
    const prefix = nodePrefix(this.#hall.names, id, units, capacity);
    const { created, line } = await this.#store.enter(name, prefix, contentBytes(this.#claim));
    this.#stand(created.path, created.path.slice(this.#store.pathOf(name).length + 1), created.czxid ?? 0);
    return line;
  }

  /**
   * The same place for fewer units: a node whose name says so, with the token of the grant. "found": that was done
   * before, by a call whose answer was lost.
   */
  async shrink(units: number): Promise<"done" | "found" | "gone"> {
    if (this.path === null) return "gone";
    const { name, id, capacity } = this.#claim;
    const sequence = entryOf(this.node)?.sequence ?? 0;
    const node = nodePrefix(this.#hall.names, id, units, capacity) + sequenceText(sequence);
    const [from, to, token] = [this.path, this.#store.nodePath(name, node), await this.token()];
    this.#perhapsAt = to;
    let outcome: "done" | "found" = "done";
    try {
      await this.#store.session.write((client) => client.replace(from, to, contentBytes(this.#claim, token)));
    } catch (error) {
      if (!hasCode(error, CODE.nodeExists, CODE.noNode)) throw error;
      const line = await this.#store.lineNow(name);
      // Released by somebody else meanwhile, who may not have seen the new node.
      if (line.find(node) === undefined || line.isMarked(id)) {
        await this.remove();
        return "gone";
      }
      await this.#store.remove(from);
      outcome = "found";
    }
    this.#perhapsAt = null;
    this.#stand(to, node, token);
    return outcome;
  }

  /** Whether the claim is lost if nothing is at this path. */
  isOnlyAt(path: string): boolean {
    return this.path === path && this.#perhapsAt === null;
  }

  async token(): Promise<number> {
    const entry = entryOf(this.node);
    if (this.#token === 0 && entry !== null) {
      this.#token = (await this.#store.know(this.#claim.name, entry))?.token ?? 0;
      if (this.#token === 0) throw new Error(`the node of ${this.#claim.id} is not there`);
    }
    return this.#token;
  }

  /** Wherever it may be. False when it was not there. */
  async remove(): Promise<boolean> {
    if (this.path === null && this.#asked) await this.#recover();
    const paths = [this.path, this.#perhapsAt].filter((path) => path !== null);
    const removed = await Promise.all(paths.map((path) => this.#store.remove(path)));
    return removed.includes(true);
  }

  /**
   * The answer to our creation was lost: find the node by its id. A write comes first. The leader decides it after
   * everything that this session asked for before, so what the line does not show then will never be there.
   */
  async #recover(): Promise<Line> {
    const { name, id } = this.#claim;
    const line = await this.#store.lineNow(name);
    const own = line.byId(id);
    if (own !== undefined) this.#stand(this.#store.nodePath(name, own.node), own.node, 0);
    return line;
  }

  #stand(path: string, node: string, token: number): void {
    this.path = path;
    this.node = node;
    this.#token = token;
    if (token > 0) this.#store.knowOwn(this.#claim, node, token);
  }
}
