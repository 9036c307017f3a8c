// An engine for memcached, written against holdfast/engine alone: a mutex, and nothing else.
import { createHash } from "node:crypto";
import { ClosedError, Listeners, SystemClock, TOMBSTONE_MS, UnsupportedError } from "holdfast/engine";
import { Connection } from "./connection.mjs";

/** Ends are whole seconds, and the server's second may be over at once: one more than asked for is the least that is enough. */
const secondsFor = (ms) => Math.ceil(ms / 1000) + 1;
const DAY_S = 24 * 60 * 60;
/** How often a compare-and-set is tried again after somebody came in between. Who loses more often than that asks again later. */
const TRIES = 10;

/** `server`: `{ host, port }`. What it guarantees depends on whether the server evicts, so it is asked first. */
export async function memcachedEngine(
  server,
  { prefix = "holdfast:", callTimeoutMs = 2000, clock = new SystemClock() } = {},
) {
  const connection = new Connection(server, clock, callTimeoutMs);
  const { evictions } = await connection.stats("settings");
  return new MemcachedEngine(connection, prefix, clock, evictions === "off");
}

class MemcachedEngine {
  kind = "memcached";
  leaseMinMs = 2000;
  cells = null;
  guarantees;
  #connection;
  #prefix;
  #clock;
  #listeners = new Listeners();
  #closed = false;

  constructor(connection, prefix, clock, keepsAll) {
    this.#connection = connection;
    this.#prefix = prefix;
    this.#clock = clock;
    this.guarantees = {
      // A server that evicts forgets a lock that is held. `memcached -M` refuses new ones instead.
      exclusion: keepsAll ? "single-server" : "until-failover",
      token: "monotonic-if-clocks",
      order: "none",
      wake: "poll",
      crashRelease: "lease",
      survivesRestart: false,
    };
  }

  async claim({ name, id, units, capacity, leaseMs, owner, data, exact, tokenAtLeast = 0, reserve }) {
    if (units !== 1 || capacity !== 1) throw mutexOnly("read-write locks and semaphores");
    if (reserve) throw mutexOnly("tokens that a claim keeps for itself");
    const key = this.#key("lock", name);
    const fresh = { id, name, owner, data, token: 0, leaseMs, at: this.#clock.wallMs() };
    const added = await this.#write(key, `T${secondsFor(leaseMs)} ME`, fresh);
    if (!added && (await this.#read(name))?.value.id !== id) {
      return (await this.#isBuried(name, id)) ? { kind: "gone" } : { kind: "busy" };
    }
    const answer = await this.#granted({ name, id, leaseMs, tokenAtLeast });
    return answer.kind === "granted" && exact ? { ...answer, live: [answer.token] } : answer;
  }

  async release({ name, id, tombstone }) {
    const buried = await this.#isBuried(name, id);
    // Before the lock is looked at: a claim that comes later sees it, and one that came before is found below.
    if (tombstone !== "never") await this.#bury(name, id);
    for (let tries = 0; tries < TRIES; tries += 1) {
      const found = await this.#read(name);
      if (found?.value.id !== id) return buried ? "revoked" : "gone";
      const { words } = await this.#call(`md ${this.#key("lock", name)} C${found.cas}`);
      if (words[0] === "HD") return "released";
    }
    throw new Error("the lock was changed each time that it was to be removed");
  }

  async renew(requests) {
    const answers = await Promise.all(
      requests.map((request) => this.#renewOne(request).catch((cause) => ({ kind: "unknown", cause }))),
    );
    const [first] = answers;
    if (first?.kind === "unknown" && answers.every(({ kind }) => kind === "unknown")) throw first.cause;
    return answers;
  }

  async resize({ name, id }, units) {
    if ((await this.#read(name))?.value.id !== id) return "gone";
    return units === 1 ? "resized" : "refused";
  }

  async setCapacity() {
    throw mutexOnly("capacities");
  }

  listen(listener) {
    return this.#listeners.add(listener);
  }

  async *inspect({ name, prefix = "" } = {}) {
    if (name === undefined) throw new UnsupportedError("memcached", "it cannot list its keys", "Inspect one name.");
    const found = await this.#read(name);
    if (found === null || found.value.token === 0 || !name.startsWith(prefix)) return;
    const { id, token, owner, data } = found.value;
    const holder = { id, units: 1, leftMs: found.leftMs, owner, token, ...(data === undefined ? {} : { data }) };
    yield { name, capacity: 1, lastToken: token, holders: [holder], waiters: [] };
  }

  async [Symbol.asyncDispose]() {
    this.#closed = true;
    this.#listeners.clear();
    this.#connection.close();
  }

  /**
   * The lock was added, or is somebody's. The token is minted while it is held and written over what was added: whoever mints
   * before it holds may be overtaken, and hold with the lower token.
   */
  async #granted({ name, id, leaseMs, tokenAtLeast }) {
    const key = this.#key("lock", name);
    const mine = await this.#read(name);
    const buried = await this.#isBuried(name, id);
    if (buried) {
      await this.release({ name, id, tombstone: "never" });
      return { kind: "gone" };
    }
    if (mine?.value.id !== id) return { kind: "busy" };
    if (mine.value.token > 0) return grantOf(mine.value.token, Math.min(mine.leftMs, leaseMs));
    const token = await this.#mint(name, tokenAtLeast);
    const written = await this.#write(key, `T${secondsFor(leaseMs)} C${mine.cas}`, { ...mine.value, token });
    // Somebody else wrote it: a copy of this claim, or it ended meanwhile and is another's.
    if (!written) throw new Error("the lock changed while its token was minted");
    return grantOf(token, leaseMs);
  }

  async #renewOne({ name, id, leaseMs, tokenAtLeast = 0 }) {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const found = await this.#read(name);
      if (found?.value.id !== id || found.value.token === 0)
        return (await this.#isBuried(name, id)) ? { kind: "gone", revoked: true } : { kind: "gone" };
      const { value, cas, leftMs, seconds } = found;
      const lease = leaseMs ?? value.leaseMs;
      const raised = tokenAtLeast > value.token;
      // An end never moves back.
      if (secondsFor(lease) <= seconds && !raised) return grantOf(value.token, Math.max(lease, leftMs));
      const token = raised ? await this.#mint(name, tokenAtLeast) : value.token;
      const next = Math.max(secondsFor(lease), seconds);
      if (await this.#write(this.#key("lock", name), `T${next} C${cas}`, { ...value, token }))
        return grantOf(token, lease);
    }
    throw new Error("the lock was changed each time that it was to be renewed");
  }

  /** One more than the last, and not below the time in microseconds: the server may have forgotten the last. */
  async #mint(name, atLeast) {
    const floor = Math.floor(Math.max(this.#clock.wallMs() * 1000, atLeast));
    const key = this.#key("token", name);
    const { block } = await this.#call(`ma ${key} N${DAY_S} J${floor} T${DAY_S} D1 v`);
    if (Number(block) >= floor) return Number(block);
    return Number((await this.#call(`ma ${key} T${DAY_S} D${floor - Number(block)} v`)).block);
  }

  /** What is held; null where nothing is. `leftMs`: surely. */
  async #read(name) {
    const { words, block } = await this.#call(`mg ${this.#key("lock", name)} v c t`);
    if (words[0] !== "VA") return null;
    const flag = (letter) => Number(words.find((word, at) => at > 1 && word[0] === letter)?.slice(1));
    const seconds = flag("t");
    return { value: JSON.parse(block), cas: flag("c"), seconds, leftMs: Math.max(0, seconds - 1) * 1000 };
  }

  async #bury(name, id) {
    await this.#write(this.#key("tombstone", `${name}\n${id}`), `T${secondsFor(TOMBSTONE_MS)}`, {});
  }

  async #isBuried(name, id) {
    return (await this.#call(`mg ${this.#key("tombstone", `${name}\n${id}`)}`)).words[0] === "HD";
  }

  /** Whether it was written: `flags` may say that it must be new, or unchanged. */
  async #write(key, flags, value) {
    const block = JSON.stringify(value);
    return (await this.#call(`ms ${key} ${Buffer.byteLength(block)} ${flags}`, block)).words[0] === "HD";
  }

  async #call(words, block) {
    if (this.#closed) throw new ClosedError("using the memcached engine");
    return this.#connection.call(words, block);
  }

  /** Keys have at most 250 bytes and no blanks; names may have 512 of any kind. */
  #key(what, name) {
    return `${this.#prefix}${what}:${createHash("sha256").update(name).digest("base64url")}`;
  }
}

const grantOf = (token, leftMs) => ({ kind: "granted", leftMs, token, floor: token });

const mutexOnly = (what) => new UnsupportedError("memcached", `it has no ${what}`, "Use a mutex, or another store.");
