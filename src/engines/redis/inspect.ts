import { EngineRefusedError } from "../../core/errors.js";
import {
  type ClaimState,
  type HolderState,
  type InspectFilter,
  type NameState,
  parseOwner,
  type WaiterState,
} from "../../core/inspect.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { RedisDriver } from "./driver.js";
import { translateError } from "./errors.js";
import type { LockKeys } from "./keys.js";
import { type Scripts, textsOf } from "./scripts.js";

const SCAN_COUNT = "1000";
/** How many names are asked for at once: a listing is not to be in the way of what the same client renews. */
const STATES_AT_ONCE = 32;

/** Busy names: one that is asked for, or all that a scan of the primaries finds. */
export class Inspection {
  readonly #driver: RedisDriver;
  readonly #scripts: Scripts;
  readonly #timeouts: CallTimeouts;
  readonly #keys: LockKeys;

  constructor(driver: RedisDriver, scripts: Scripts, timeouts: CallTimeouts, keys: LockKeys) {
    this.#driver = driver;
    this.#scripts = scripts;
    this.#timeouts = timeouts;
    this.#keys = keys;
  }

  async *inspect({ name, prefix = "" }: InspectFilter): AsyncGenerator<NameState> {
    if (name !== undefined) {
      const state = name.startsWith(prefix) ? await this.#state(this.#keys.keyOf(name)) : undefined;
      if (state !== undefined) yield state;
      return;
    }
    for await (const keys of scanKeys(this.#driver, this.#timeouts, this.#keys.keyOf(prefix))) {
      for (let rest = keys; rest.length > 0; rest = rest.slice(STATES_AT_ONCE)) {
        const states = rest.slice(0, STATES_AT_ONCE).map((key) => this.#stateOfOurs(key));
        for (const state of await Promise.all(states)) if (state !== undefined) yield state;
      }
    }
  }

  async #stateOfOurs(key: string): Promise<NameState | undefined> {
    try {
      return await this.#state(key);
    } catch (error) {
      // Another program's key that happens to begin like ours.
      if (error instanceof EngineRefusedError && error.message.includes("WRONGTYPE")) return undefined;
      throw error;
    }
  }

  async #state(key: string): Promise<NameState | undefined> {
    const texts = await this.#scripts.texts("inspect", [key], [this.#keys.idleMsText]);
    return parseState(this.#keys.nameOf(key), texts);
  }
}

/** Every key that begins with `start`, on all primaries, each once, page by page, as the library wants it (without its own prefix). */
async function* scanKeys(
  driver: RedisDriver,
  timeouts: CallTimeouts,
  start: string,
): AsyncGenerator<readonly string[]> {
  const { keyPrefix } = driver;
  // In a pattern these would mean something else.
  const pattern = `${(keyPrefix + start).replace(/[*?[\]\\^-]/g, "\\$&")}*`;
  // SCAN may show a key twice, and while a slot moves two servers may.
  const seen = new Set<string>();
  for (const call of await driver.primaries()) {
    let cursor = "0";
    do {
      let reply: unknown;
      try {
        reply = await timeouts.limit(call(["scan", cursor, "match", pattern, "count", SCAN_COUNT]));
      } catch (cause) {
        throw translateError(cause);
      }
      const [next, keys] = reply as [unknown, unknown];
      const unseen = [...new Set(textsOf(keys))].filter((key) => !seen.has(key));
      for (const key of unseen) seen.add(key);
      yield unseen.map((key) => key.slice(keyPrefix.length));
      cursor = String(next);
    } while (cursor !== "0");
  }
}

/** What `inspect.lua` says of a busy name; undefined for an idle one. */
function parseState(name: string, [head, ...claims]: readonly string[]): NameState | undefined {
  if (head === undefined) return undefined;
  const [, capacity, lastToken] = head.split(" ");
  const holders: HolderState[] = [];
  const waiters: WaiterState[] = [];
  for (const text of claims) {
    const [numbers = "", id = "", owner = "", ...data] = text.split("\n");
    const [, units, leftMs, token, forMs] = numbers.split(" ");
    const state: ClaimState = {
      id,
      units: Number(units),
      leftMs: Number(leftMs),
      owner: parseOwner(owner),
      ...(data.length > 0 ? { data: data.join("\n") } : {}),
    };
    const ms = forMs === "-" ? undefined : Number(forMs);
    if (token === "-") waiters.push(ms === undefined ? state : { ...state, waitingMs: ms });
    else holders.push({ ...state, token: Number(token), ...(ms === undefined ? {} : { heldMs: ms }) });
  }
  return { name, capacity: Number(capacity), lastToken: Number(lastToken), holders, waiters };
}
