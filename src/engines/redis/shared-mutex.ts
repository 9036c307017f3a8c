// Beyond the fixed set of files: layouts that other programs share, with a script for each verb and nothing else.
import type { Cells } from "../../core/cells.js";
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
import { parseClaimAnswer, parseRenewAnswer, parseWord } from "./codec.js";
import type { RedisDriver } from "./driver.js";
import type { ServerFacts } from "./guarantees.js";
import { keyBeside } from "./keys.js";
import type { Layout } from "./layouts.js";
import { throwIfAllUnknown } from "./renew.js";
import type { Scripts } from "./scripts.js";
import type { Wakes } from "./wakes.js";

export type SharedMutexParts = {
  readonly driver: RedisDriver;
  readonly scripts: Scripts;
  readonly timeouts: CallTimeouts;
  readonly listeners: Listeners;
  readonly server: ServerFacts;
  readonly layout: Layout;
  readonly wakes: Wakes;
  /** Null where the layout has none. */
  readonly latches: Cells | null;
  readonly prefix: string;
  readonly close: () => Promise<void>;
};

/**
 * A mutex at exactly the lock's name, in a layout that other programs use too: whoever does excludes us and is excluded. It has
 * room for a mutex and nothing else: no queue, no units, no owner.
 */
export class SharedMutexEngine implements Engine {
  readonly kind = "redis";
  readonly leaseMinMs = 1;
  readonly cells = null;
  readonly latches?: Cells;
  readonly #parts: SharedMutexParts;
  #closed = false;

  constructor(parts: SharedMutexParts) {
    this.#parts = parts;
    if (parts.latches !== null) this.latches = parts.latches;
  }

  get guarantees(): Guarantees {
    const { server, wakes, driver, layout } = this.#parts;
    // In a Cluster Redisson publishes on sharded channels, to which this engine does not listen.
    const heard = wakes.live && (layout.name === "plain" || driver.topology !== "cluster");
    return { ...server.guarantees(heard ? "push" : "poll"), order: "none" };
  }

  get resends(): boolean {
    return this.#parts.driver.resends;
  }

  async claim(request: ClaimRequest): Promise<ClaimAnswer> {
    const { name, id, units, capacity, leaseMs, exact, tokenAtLeast = 0, reserve } = request;
    if (capacity !== 1 || units !== 1) throw this.#mutexOnly("read-write locks and semaphores");
    // A token is the time of its grant: the next one may come before so many microseconds have passed.
    if (reserve) throw this.#mutexOnly("tokens that a claim keeps for itself");
    const args = [id, String(leaseMs), String(tokenAtLeast)];
    const { layout, wakes } = this.#parts;
    const keys = this.#keys(name, id);
    if (layout.tokenKey !== null) keys.push(layout.tokenKey(name));
    // "busy" says no more: the layout does not tell who holds it.
    const text = await this.#open().text(layout.scripts.claim, keys, args);
    const answer = text === "busy" ? ({ kind: "busy" } as const) : parseClaimAnswer(text);
    if (answer.kind === "busy" && request.wait) wakes.expect(name);
    return answer.kind === "granted" && exact ? { ...answer, live: [answer.token] } : answer;
  }

  async release({ name, id, tombstone }: ReleaseRequest): Promise<ReleaseAnswer> {
    const { driver, layout, wakes } = this.#parts;
    const tombstoneMs = tombstone === "never" && !driver.resends ? 0 : TOMBSTONE_MS;
    const { channel, message } = wakes.pushOf(name);
    const args = [id, String(tombstoneMs), channel, message, driver.topology === "cluster" ? "1" : "0"];
    const text = await this.#open().text(layout.scripts.release, this.#keys(name, id), args);
    return parseWord(text, "released", "gone", "revoked");
  }

  async renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const scripts = this.#open();
    const { renew } = this.#parts.layout.scripts;
    const answers = await Promise.all(
      requests.map(async ({ name, id, leaseMs = 0 }): Promise<RenewAnswer> => {
        try {
          const answer = parseRenewAnswer(await scripts.text(renew, [name], [id, String(leaseMs)]));
          return answer.kind === "gone" ? await this.#goneOrRevoked(name, id) : answer;
        } catch (cause) {
          return { kind: "unknown", cause };
        }
      }),
    );
    return throwIfAllUnknown(answers);
  }

  async resize({ name, id }: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    const text = await this.#open().text(this.#parts.layout.scripts.renew, [name], [id, "0"]);
    if (parseRenewAnswer(text).kind === "gone") return "gone";
    return units === 1 ? "resized" : "refused";
  }

  async setCapacity(): Promise<never> {
    throw this.#mutexOnly("capacities");
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#parts.listeners.add(listener);
  }

  async *inspect({ name, prefix = "" }: InspectFilter = {}): AsyncGenerator<NameState> {
    const { layout } = this.#parts;
    if (name === undefined) {
      const missing = `in the ${layout.name} layout a lock cannot be told from any other key`;
      throw new UnsupportedError("redis", missing, "Inspect one name, or use the fair layout.");
    }
    const text = await this.#open().text(layout.scripts.inspect, [name], []);
    if (text === "free" || !name.startsWith(prefix)) return;
    const line = text.indexOf("\n");
    const value = text.slice(line + 1);
    const [, id = value, token = "0"] = layout.ours.exec(value) ?? [];
    const left = Number(text.slice("held ".length, line));
    const owner = { client: value, host: "unknown", pid: 0 };
    const holder = { id, units: 1, leftMs: left < 0 ? Number.POSITIVE_INFINITY : left, owner, token: Number(token) };
    yield { name, capacity: 1, lastToken: holder.token, holders: [holder], waiters: [] };
  }

  async serverInfo(): Promise<ServerInfo> {
    this.#open();
    return this.#parts.server.serverInfo();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#parts.listeners.clear();
    await this.#parts.close();
  }

  /**
   * Whether somebody released it. Asked in a call of its own: a script with two keys, one of them absent, is not served
   * while their slot moves (`pitfalls.md` 40), and a renewal has to be.
   */
  async #goneOrRevoked(name: string, id: string): Promise<Gone> {
    const { driver, timeouts } = this.#parts;
    const [, key = ""] = this.#keys(name, id);
    // Without an answer it is gone all the same, and its holder is told now.
    const tombstones = await timeouts.limit(driver.call(key, ["exists", key])).catch(() => 0);
    return Number(tombstones) === 1 ? { kind: "gone", revoked: true } : { kind: "gone" };
  }

  /** Of the lock, and of the tombstone of this id's release, in the same slot. */
  #keys(name: string, id: string): string[] {
    const { driver, prefix } = this.#parts;
    return [name, keyBeside(driver, prefix, "tombstone", name, id)];
  }

  #mutexOnly(what: string): UnsupportedError {
    const missing = `the ${this.#parts.layout.name} layout has no ${what}`;
    return new UnsupportedError("redis", missing, 'Use the "fair" layout, or a mutex.');
  }

  #open(): Scripts {
    if (this.#closed) throw new ClosedError("using the redis engine");
    return this.#parts.scripts;
  }
}
