import type { Cells } from "../../core/cells.js";
import type { Clock } from "../../core/clock.js";
import type {
  CapacityAnswer,
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
import { ClosedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import type { Unlisten } from "../../core/unlisten.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { ZooKeeperCells } from "./cells.js";
import { CODE, hasCode, type ZooKeeperClient } from "./client.js";
import type { Hall } from "./hall.js";
import { inspectNames } from "./inspect.js";
import type { Line } from "./line.js";
import type { Entry } from "./names.js";
import type { Settings } from "./options.js";
import { isRefused, refused } from "./refusals.js";
import { Seat } from "./seat.js";
import { Session } from "./session.js";
import { fenceOf, queuedOf } from "./show.js";
import { rulingBytes, Store } from "./store.js";

/** Nodes confirmed in one request: well below the megabyte that a server accepts. */
const CONFIRMED_AT_ONCE = 400;

const RELEASING = "releasing";
const RENEWING = "renewing";

const keyOf = ({ name, id }: ClaimRef): string => `${name}\n${id}`;

export class ZooKeeperEngine implements Engine {
  readonly kind = "zookeeper";
  readonly guarantees: Guarantees;
  readonly #cells: ZooKeeperCells | null;
  readonly #clock: Clock;
  readonly #session: Session;
  readonly #store: Store;
  readonly #hall: Hall;
  readonly #seats = new Map<string, Seat>();
  readonly #listeners: Listeners;
  #closed = false;

  private constructor(session: Session, settings: Settings, guarantees: Guarantees, listeners: Listeners) {
    this.#listeners = listeners;
    this.#clock = settings.clock;
    this.#session = session;
    this.guarantees = guarantees;
    this.#store = new Store(session, settings.base);
    this.#cells = session.client.transact === null ? null : new ZooKeeperCells(this.#store, session.client.transact);
    this.#hall = {
      store: this.#store,
      clock: settings.clock,
      names: settings.nodeNames,
      push: (event) => this.#push(event),
      left: (seat) => {
        if (this.#seats.get(keyOf(seat.claim)) === seat) this.#seats.delete(keyOf(seat.claim));
      },
    };
  }

  /** The client is the engine's from now on: its session is what every claim lives by. */
  static async open(client: ZooKeeperClient, settings: Settings): Promise<ZooKeeperEngine> {
    let ended = (): void => {};
    let returned = (): void => {};
    const listeners = new Listeners();
    const session = new Session(
      client,
      settings.clock,
      settings.base,
      () => ended(),
      () => returned(),
      (message) => listeners.tell({ kind: "warning", message }),
    );
    await session.start();
    const engine = new ZooKeeperEngine(session, settings, await guaranteesOf(session), listeners);
    ended = () => engine.#sessionEnded();
    returned = () => engine.#connectedAgain();
    return engine;
  }

  get cells(): Cells | null {
    return this.#cells;
  }

  /** A holder that dies is noticed no sooner than this, however short its lease. */
  get leaseMinMs(): number {
    return this.#session.timeoutMs;
  }

  claim(claim: ClaimRequest): Promise<ClaimAnswer> {
    return this.#answer("claiming", async (calledAt) => {
      const key = keyOf(claim);
      let seat = this.#seats.get(key);
      if (seat === undefined) this.#seats.set(key, (seat = new Seat(this.#hall, claim)));
      try {
        return (await seat.enter(calledAt)) ?? (await this.#knownElsewhere(claim));
      } catch (error) {
        // An answer: nobody will release what may stand all the same.
        if (isRefused(error)) seat.expire();
        throw error;
      }
    });
  }

  release({ name, id, tombstone }: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#answer(RELEASING, async () => {
      const seat = this.#seats.get(keyOf({ name, id }));
      if (seat !== undefined) return seat.leave(tombstone === "never");
      // First the mark, then the look: a claim that comes in after the look finds the mark.
      const marked = tombstone === "never" ? null : !(await this.#store.mark(name, id));
      const line = await this.#store.lineNow(name);
      // While it shrinks there may be two.
      const nodes = line.entries.filter((entry) => entry.id === id).map(({ node }) => this.#store.nodePath(name, node));
      const removed = await Promise.all(nodes.map((node) => this.#store.remove(node)));
      if (removed.includes(true)) return "released";
      return (marked ?? line.isMarked(id)) ? "revoked" : "gone";
    });
  }

  renew(signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    return this.#answer(RENEWING, async (calledAt) => {
      const seats = signs.map((sign) => this.#seats.get(keyOf(sign)));
      const paths = seats.map((seat) => seat?.path ?? null);
      const confirming = this.#confirm(paths.filter((path) => path !== null));
      // After the confirmation in the same session: the line shows all that was done before it.
      const lines = new Map<string, Promise<Line>>();
      signs.forEach(({ name }, index) => {
        const seat = seats[index];
        if (lines.has(name) || (seat !== undefined && !seat.needsLine)) return;
        const line = this.#store.line(name);
        // Looked at by each that needs it, below; until then nobody may seem to have missed it.
        line.catch(() => {});
        lines.set(name, line);
      });
      const there = await confirming;
      const answers = signs.map(async (sign, index): Promise<RenewAnswer> => {
        const [seat, path, line] = [seats[index], paths[index] ?? null, await lines.get(sign.name)];
        if (seat === undefined) return line === undefined ? { kind: "gone" } : this.#stranger(sign, line);
        if (path === null) return { kind: "unknown", cause: new Error("it is still being claimed") };
        const answer = there.has(path) ? await seat.renewed(sign, line ?? null, calledAt) : seat.missing(path);
        return answer.kind === "gone" ? goneOf(sign.id, line ?? (await this.#store.line(sign.name))) : answer;
      });
      return Promise.all(
        answers.map((answer) => answer.catch((cause: unknown) => ({ kind: "unknown", cause }) as const)),
      );
    });
  }

  resize({ name, id }: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#answer("resizing", async () => {
      const seat = this.#seats.get(keyOf({ name, id }));
      if (seat !== undefined) return seat.shrink(units);
      // A node belongs to its session: nobody else can put another in its place.
      return (await this.#store.lineNow(name)).byId(id) === undefined ? "gone" : "refused";
    });
  }

  setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#answer("setting the capacity", async () => {
      for (;;) {
        const line = await this.#store.lineNow(name);
        if (line.entries.length === 0 || line.capacity === to) return { kind: "set" };
        if (line.capacity !== from) return { kind: "mismatch", capacity: line.capacity };
        if (await this.#rule(name, line, to)) return { kind: "set" };
      }
    });
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    this.#assertOpen("inspecting");
    try {
      yield* inspectNames(this.#store, filter);
    } catch (error) {
      throw refused(error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#listeners.clear();
    const seats = [...this.#seats.values()];
    this.#seats.clear();
    for (const seat of seats) seat.end();
    // The session's end takes all nodes along, marks too.
    await this.#session.close();
  }

  /** False when somebody else set it at the same time: look again. */
  async #rule(name: string, line: Line, to: number): Promise<boolean> {
    const parent = this.#store.pathOf(name);
    const version = (await this.#session.read((client) => client.exists(parent)))?.version;
    const again = await this.#store.line(name);
    if (version === undefined || again.capacity !== line.capacity) return false;
    const heldTo = again.holders.at(-1)?.sequence ?? null;
    try {
      await this.#session.write((client) => client.set(parent, rulingBytes({ capacity: to, heldTo }), version));
    } catch (error) {
      if (hasCode(error, CODE.badVersion, CODE.noNode)) return false;
      throw error;
    }
    const ruled = await this.#store.line(name);
    const tooLarge = ruled.waiters.filter((entry) => entry.units > to);
    await Promise.all(tooLarge.map((entry) => this.#store.remove(this.#store.nodePath(name, entry.node))));
    await this.#touch(name, again.holders.at(-1));
    return true;
  }

  /** The first in line watches the last holder: let it see a change, and find its turn. */
  async #touch(name: string, holder: Entry | undefined): Promise<void> {
    if (holder === undefined) return;
    const path = this.#store.nodePath(name, holder.node);
    const node = await this.#session.read((client) => client.get(path));
    // Its end wakes just as well, and a poll follows in any case.
    if (node !== null) await this.#session.write((client) => client.set(path, node.data)).catch(() => {});
  }

  async #confirm(paths: readonly string[]): Promise<ReadonlySet<string>> {
    const chunks: string[][] = [[]];
    for (const path of paths) {
      const last = chunks.at(-1) ?? [];
      if (last.length < CONFIRMED_AT_ONCE) last.push(path);
      else chunks.push([path]);
    }
    const there = await Promise.all(
      chunks.map(async (chunk) => {
        const exist = await this.#session.write((client) => client.confirm(chunk));
        return chunk.filter((_, index) => exist[index]);
      }),
    );
    return new Set(there.flat());
  }

  async #knownElsewhere(claim: ClaimRequest): Promise<ClaimAnswer> {
    const answer = await this.#stranger(claim, await this.#store.lineNow(claim.name));
    if (answer.kind === "unknown") throw answer.cause;
    // A claim is not told why.
    return answer.kind === "gone" ? { kind: "gone" } : answer;
  }

  /** A claim of another client: it can be looked at, but only its own client keeps it alive, so it has no time left here. */
  async #stranger({ name, id }: ClaimRef, line: Line): Promise<RenewAnswer> {
    const entry = line.byId(id);
    if (entry === undefined) return goneOf(id, line);
    if (!line.holds(entry)) return queuedOf(this.#store, name, line, entry);
    const known = await this.#store.know(name, entry);
    if (known === null) return goneOf(id, await this.#store.line(name));
    const fence = await fenceOf(this.#store, { name, exact: known.exact }, known.token, line.holders);
    return { kind: "granted", leftMs: 0, ...fence };
  }

  #sessionEnded(): void {
    const seats = [...this.#seats.values()];
    this.#seats.clear();
    const waiting = seats.filter((seat) => !seat.granted).length;
    if (waiting > 0) {
      const message = `the ZooKeeper session ended: ${waiting} waiting claims lost their place and join again at the end`;
      this.#push({ kind: "warning", message });
    }
    for (const seat of seats) seat.end();
  }

  /** Watches were set again, those of an old session are gone: what changed meanwhile is best asked for. */
  #connectedAgain(): void {
    this.#push({ kind: "wake" });
    this.#cells?.lookAgain();
  }

  #push(event: EngineEvent): void {
    if (!this.#closed) this.#listeners.tell(event);
  }

  async #answer<T>(doing: string, call: (calledAt: number) => Promise<T>): Promise<T> {
    this.#assertOpen(doing);
    try {
      return await call(this.#clock.now());
    } catch (error) {
      throw refused(error, doing === RELEASING || doing === RENEWING);
    }
  }

  #assertOpen(doing: string): void {
    if (this.#closed) throw new ClosedError(`${doing} with the zookeeper engine`);
  }
}

/** A claim without a node. With a mark, somebody released it. */
function goneOf(id: string, line: Line): Gone {
  return line.isMarked(id) ? { kind: "gone", revoked: true } : { kind: "gone" };
}

/** Three servers or more decide together; what cannot be read counts as one. */
async function guaranteesOf(session: Session): Promise<Guarantees> {
  const config = await session
    .read((client) => client.get("/zookeeper/config"))
    .catch((error: unknown) => {
      // Nobody looks again: a connection that breaks just now must not make three servers look like one.
      if (!hasCode(error, CODE.noAuth)) throw error;
      return null;
    });
  const voters = config?.data.toString().match(/^server\.\d+=(?!.*:observer)/gm)?.length ?? 0;
  return {
    exclusion: voters >= 3 ? "consensus" : "single-server",
    token: "monotonic",
    order: "fifo",
    wake: "push",
    crashRelease: "session",
    survivesRestart: true,
  };
}
