import type {
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  Gone,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import { ClosedError, UnsupportedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { Listeners } from "../../engine-kit/listeners.js";
import type { RedisLike } from "./client.js";
import { parseAnswer, parseRenewal, parseWord } from "./codec.js";
import type { Scripts } from "./scripts.js";

export type PlainParts = {
  readonly client: RedisLike;
  readonly scripts: Scripts;
  readonly deadlines: CallTimeouts;
  readonly listeners: Listeners;
  /** Called when a name is busy: who asked may wait for a push. */
  readonly expect: () => void;
  /** One for all: without a queue in the store nobody knows who waits. */
  readonly channel: string;
  readonly prefix: string;
  readonly guarantees: () => Guarantees;
  readonly about: () => Promise<ServerInfo>;
  readonly dispose: () => Promise<void>;
};

/**
 * The plain layout: `SET key value NX PX` at exactly the lock's name, and compare-and-delete. Whatever uses that layout
 * excludes us and is excluded. It has room for a mutex and nothing else: no queue, no units, no owner.
 */
export class PlainEngine implements Engine {
  readonly kind = "redis";
  readonly leaseMinMs = 1;
  readonly cells = null;
  readonly #parts: PlainParts;
  #closed = false;

  constructor(parts: PlainParts) {
    this.#parts = parts;
  }

  get guarantees(): Guarantees {
    return this.#parts.guarantees();
  }

  get resends(): boolean {
    return this.#parts.client.resends;
  }

  async claim({ name, id, units, capacity, leaseMs, exact, tokenAtLeast = 0 }: ClaimRequest): Promise<ClaimAnswer> {
    if (capacity !== 1 || units !== 1) throw mutexOnly("read-write locks and semaphores");
    const args = [id, String(leaseMs), String(tokenAtLeast)];
    // "busy" says no more: the layout does not tell who holds it.
    const text = await this.#open().text("plainClaim", this.#keys(name, id), args);
    const answer = text === "busy" ? ({ kind: "busy" } as const) : parseAnswer(text);
    if (answer.kind === "busy") this.#parts.expect();
    return answer.kind === "granted" && exact ? { ...answer, live: [answer.token] } : answer;
  }

  async release({ name, id, tombstone }: ReleaseRequest): Promise<ReleaseAnswer> {
    const { client, channel } = this.#parts;
    const markMs = tombstone === "never" && !client.resends ? 0 : TOMBSTONE_MS;
    const text = await this.#open().text("plainRelease", this.#keys(name, id), [id, String(markMs), channel, name]);
    return parseWord(text, "released", "gone", "revoked");
  }

  async renew(signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const scripts = this.#open();
    const answers = await Promise.all(
      signs.map(async ({ name, id, leaseMs = 0 }): Promise<RenewAnswer> => {
        try {
          const renewal = parseRenewal(await scripts.text("plainRenew", [name], [id, String(leaseMs)]));
          return renewal.kind === "gone" ? await this.#gone(name, id) : renewal;
        } catch (cause) {
          return { kind: "unknown", cause };
        }
      }),
    );
    // Nothing was learned: say so as a failed call does.
    const [first] = answers;
    if (first?.kind === "unknown" && answers.every(({ kind }) => kind === "unknown")) throw first.cause;
    return answers;
  }

  async resize({ name, id }: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    const text = await this.#open().text("plainRenew", [name], [id, "0"]);
    if (parseRenewal(text).kind === "gone") return "gone";
    return units === 1 ? "resized" : "refused";
  }

  async setCapacity(): Promise<never> {
    throw mutexOnly("capacities");
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#parts.listeners.add(listener);
  }

  async *inspect({ name, prefix = "" }: InspectFilter = {}): AsyncGenerator<NameState> {
    if (name === undefined) {
      const missing = "in the plain layout a lock cannot be told from any other key";
      throw new UnsupportedError("redis", missing, "Inspect one name, or use the fair layout.");
    }
    const text = await this.#open().text("plainInspect", [name], []);
    if (text === "free" || !name.startsWith(prefix)) return;
    const line = text.indexOf("\n");
    const value = text.slice(line + 1);
    const [, id = value, token = "0"] = /^(.*):(\d+)$/.exec(value) ?? [];
    const left = Number(text.slice("held ".length, line));
    const owner = { client: value, host: "unknown", pid: 0 };
    const holder = { id, units: 1, leftMs: left < 0 ? Number.POSITIVE_INFINITY : left, owner, token: Number(token) };
    yield { name, capacity: 1, lastToken: holder.token, holders: [holder], waiters: [] };
  }

  async serverInfo(): Promise<ServerInfo> {
    this.#open();
    return this.#parts.about();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#parts.listeners.clear();
    await this.#parts.dispose();
  }

  /**
   * Whether somebody released it. Asked in a call of its own: a script with two keys, one of them absent, is not served
   * while their slot moves (`pitfalls.md` 40), and a renewal has to be.
   */
  async #gone(name: string, id: string): Promise<Gone> {
    const { client, deadlines } = this.#parts;
    const [, mark = ""] = this.#keys(name, id);
    const marked = await deadlines.limit(client.call(mark, ["exists", mark])).catch(() => 0);
    return Number(marked) === 1 ? { kind: "gone", revoked: true } : { kind: "gone" };
  }

  #keys(name: string, id: string): string[] {
    const { client, prefix } = this.#parts;
    const tag = hashTag(client.keyPrefix + name);
    if (client.topology === "cluster" && tag.includes("}")) {
      throw new UnsupportedError(
        "redis",
        `in a Cluster "${name}" has a "}" that ends no hash tag`,
        "Choose another name.",
      );
    }
    // Braces of the prefix would be the tag.
    return [name, `${prefix.replace(/[{}]/g, "")}mark:{${tag}}:${id}`];
  }

  #open(): Scripts {
    if (this.#closed) throw new ClosedError("using the redis engine");
    return this.#parts.scripts;
  }
}

/** What Redis hashes of a key: the part between the first { and the next }, unless that is empty; otherwise all of it. */
function hashTag(key: string): string {
  return /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key;
}

function mutexOnly(what: string): UnsupportedError {
  return new UnsupportedError("redis", `the plain layout has no ${what}`, 'Use the "fair" layout, or a mutex.');
}
