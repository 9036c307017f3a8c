import type { Timer } from "../../core/clock.js";
import type {
  ClaimAnswer,
  ClaimRequest,
  Granted,
  Queued,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import { Ending } from "./ending.js";
import type { Hall } from "./hall.js";
import { isPermit, type Line } from "./line.js";
import { Lookout } from "./lookout.js";
import type { Entry } from "./names.js";
import { Place } from "./place.js";
import { isRefused } from "./refusals.js";
import { fenceOf, queuedOf } from "./show.js";
import { contentBytes } from "./store.js";

const REMOVE_AGAIN_MS = 500;
/** Most claims are over before anybody could have taken them out. */
const WATCH_SELF_AFTER_MS = 100;

/**
 * One claim of this client: a node, its place in line, and a lease that this client itself keeps. A session carries many
 * claims, and only ends when the whole client is gone; a claim whose own lease ends is taken out here.
 */
export class Seat {
  readonly claim: ClaimRequest;
  units: number;
  granted = false;
  over = false;
  readonly #hall: Hall;
  readonly #place: Place;
  /** Checked against marks, copies and the capacity. */
  #admitted = false;
  #leaving = false;
  /** When the first call asked for it: the lease counts from there. */
  #askedAt = Infinity;
  /** The lease. */
  readonly #ending: Ending;
  #watchingSelf: Timer | null = null;
  readonly #lookout: Lookout;
  #lookIsDue = false;
  /** The first of all: whoever holds beside it came later. */
  #oldest = false;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(hall: Hall, claim: ClaimRequest) {
    this.#hall = hall;
    this.claim = claim;
    this.units = claim.units;
    this.#place = new Place(hall, claim);
    this.#ending = new Ending(hall.clock, () => this.expire());
    this.#lookout = new Lookout(hall.store, claim.name, () => this.#lookSoon());
  }

  /** Where its node is; null until a server said so. */
  get path(): string | null {
    return this.#place.path;
  }

  /** `null`: somebody else has this id already; this seat is over. */
  enter(calledAt: number): Promise<ClaimAnswer | null> {
    return this.#inTurn(async () => {
      if (this.over) return { kind: "gone" };
      this.#askedAt = Math.min(this.#askedAt, calledAt);
      // Also when the line could not be read: the node may be there all the same.
      const line = await this.#place.take().finally(() => this.#settle());
      return this.#admit(line, calledAt);
    });
  }

  leave(settled: boolean): Promise<ReleaseAnswer> {
    const { store } = this.#hall;
    const { name, id } = this.claim;
    const left = this.#inTurn(async (): Promise<ReleaseAnswer> => {
      const isMarked = async (): Promise<boolean> => (await store.line(name)).isMarked(id);
      if (this.over) return (await isMarked()) ? "revoked" : "gone";
      this.#leaving = true;
      this.#lookout.leave();
      const marking = settled ? null : store.mark(name, id);
      const [removed, first] = await Promise.all([this.#place.remove(), marking]);
      this.#finish();
      if (removed) return "released";
      return (first === null ? await isMarked() : !first) ? "revoked" : "gone";
    });
    // Whoever asked may give up before there is a connection again, and the session may well outlast that.
    left.catch(() => this.expire());
    return left;
  }

  /** A heartbeat that was confirmed, with the line as it was after that. */
  async renewed(sign: RenewRequest, line: Line | null, calledAt: number): Promise<RenewAnswer> {
    if (calledAt >= this.#ending.at) this.expire();
    if (this.over) return { kind: "gone" };
    const own = line?.find(this.#place.node);
    if (!this.granted && own !== undefined && line?.holds(own)) this.#grant(line, own);
    const leaseMs = this.granted ? (sign.leaseMs ?? this.claim.leaseMs) : waiterLeaseMs(this.claim.leaseMs);
    this.#ending.putOffTo(Math.max(this.#ending.at, calledAt + leaseMs));
    if (this.granted) return this.#grantedAnswer(line, calledAt);
    if (line === null || own === undefined) throw new Error(`the place of ${this.claim.id} in line is not known`);
    if (!this.#lookout.covers(line, own)) this.#lookSoon();
    return queuedOf(this.#hall.store, this.claim.name, line, own);
  }

  /** Whether the line has to be known to renew it: to see its turn, or the oldest token beside its own. */
  get needsLine(): boolean {
    return !this.granted || !this.#oldest || this.claim.exact === true;
  }

  shrink(units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#inTurn(async () => {
      if (this.over || this.path === null) return "gone";
      if (!this.granted || units >= this.units) {
        // Nothing to write: whether it is still there has to be asked.
        const own = (await this.#hall.store.lineNow(this.claim.name)).byId(this.claim.id);
        if (own === undefined) return this.#lose();
        return this.granted && own.units === units ? "resized" : "refused";
      }
      const outcome = await this.#place.shrink(units);
      if (outcome === "gone") return this.#lose();
      // The end of the old node, which would have told that there is another to watch, was told before.
      if (outcome === "found") this.#selfChanged();
      this.units = units;
      return "resized";
    });
  }

  /** The confirmation says that its node is not there. */
  missing(path: string): RenewAnswer {
    if (this.#place.isOnlyAt(path)) this.#lose();
    return this.over ? { kind: "gone" } : { kind: "unknown", cause: new Error("its node was being replaced") };
  }

  /** Its node is gone with the session. */
  end(): void {
    if (this.over) return;
    this.#finish();
    this.#tell(this.granted ? "lost" : "wake");
  }

  /** One thing at a time: an answer that comes late must not undo what came after it. */
  #inTurn<T>(run: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(run);
    this.#turn = done.catch(() => {});
    return done;
  }

  /** Once it stands somewhere its lease counts, and somebody may take it out. */
  #settle(): void {
    if (this.over || this.path === null) return;
    if (this.#ending.at === Infinity) this.#ending.putOffTo(this.#askedAt + waiterLeaseMs(this.claim.leaseMs));
    this.#watchingSelf ??= this.#hall.clock.after(WATCH_SELF_AFTER_MS, () => this.#selfChanged());
  }

  async #admit(line: Line, calledAt: number): Promise<ClaimAnswer | null> {
    const { id, capacity, wait } = this.claim;
    // Its session or its lease ended while it came in: nobody would take it out again.
    if (this.over) return this.#refuse({ kind: "gone" });
    const own = line.find(this.#place.node);
    if (own === undefined) return { kind: this.#lose() };
    if (!this.#admitted) {
      const copy = line.byId(id);
      if (line.isMarked(id)) return this.#refuse({ kind: "gone" });
      if (copy !== undefined && copy !== own) return this.#refuse(null);
      if (line.capacity !== capacity) return this.#refuse({ kind: "mismatch", capacity: line.capacity });
      if (line.holds(own)) {
        this.#grant(line, own);
        this.#ending.putOffTo(this.#askedAt + this.claim.leaseMs);
      } else if (!wait) {
        const busy = queuedOf(this.#hall.store, this.claim.name, line, own);
        const [{ holder }] = await Promise.all([busy, this.#refuse(null)]);
        return { kind: "busy", ...(holder === undefined ? {} : { holder }) };
      }
      this.#admitted = true;
    }
    if (this.granted) return this.#grantedAnswer(line, calledAt);
    return this.#wait(line, calledAt);
  }

  async #refuse<T extends ClaimAnswer | null>(answer: T): Promise<T> {
    this.#leaving = true;
    // What could not be removed may be asked for again.
    await this.#place.remove().finally(() => (this.#leaving = false));
    this.#finish();
    return answer;
  }

  /** Until it is its turn, or a watch stands that will tell. */
  async #wait(first: Line, calledAt: number): Promise<Granted | Queued | { readonly kind: "gone" }> {
    let line = first;
    for (;;) {
      const own = line.find(this.#place.node);
      if (own === undefined) return { kind: this.#lose() };
      if (this.over) return { kind: "gone" };
      if (this.granted || line.holds(own)) {
        this.#grant(line, own);
        return this.#grantedAnswer(line, calledAt);
      }
      const [answer, changed] = await Promise.all([
        queuedOf(this.#hall.store, this.claim.name, line, own),
        this.#lookout.watch(line, own),
      ]);
      if (changed === null) return answer;
      line = changed;
    }
  }

  #lookSoon(): void {
    if (this.#lookIsDue || this.granted || this.over) return;
    this.#lookIsDue = true;
    // What cannot be learned now is asked, and watched again, with the next heartbeat.
    this.#inTurn(() => this.#look()).catch(() => this.#lookout.leave());
  }

  async #look(): Promise<void> {
    this.#lookIsDue = false;
    if (this.granted || this.over || this.#leaving || this.path === null) return;
    const line = await this.#hall.store.lineForAll(this.claim.name);
    const answer = await this.#wait(line, this.#hall.clock.now());
    if (answer.kind !== "granted") return;
    // The core counts from the last heartbeat, as long as a waiter's lease; may it, by what is known of the session?
    if (this.#ending.at > this.#hall.store.session.until) return this.#tell("wake");
    const { leftMs: _, ...grant } = answer;
    this.#hall.push({ ...grant, name: this.claim.name, id: this.claim.id });
  }

  /** Its turn. After waiting the lease stays as it is until it is confirmed. */
  #grant(line: Line, own: Entry): void {
    if (this.granted) return;
    this.granted = true;
    this.#lookout.leave();
    // With permits the next may have its turn at the same time, although nobody left: let it see a change, or find out.
    if (!isPermit(this.units, line.capacity) || line.entries.at(-1) === own || this.path === null) return;
    const path = this.path;
    this.#hall.store.session.write((client) => client.set(path, contentBytes(this.claim))).catch(() => {});
  }

  async #grantedAnswer(line: Line | null, calledAt: number): Promise<Granted> {
    const { name, exact } = this.claim;
    if (line?.entries[0]?.node === this.#place.node) this.#oldest = true;
    const fence = await fenceOf(this.#hall.store, { name, exact }, await this.#place.token(), line?.holders ?? []);
    const until = Math.min(this.#ending.at, this.#hall.store.session.until);
    return { kind: "granted", leftMs: Math.max(0, until - calledAt), ...fence };
  }

  /** To be told when somebody else takes it out. */
  async #watchSelf(): Promise<void> {
    const { path } = this;
    if (path === null || this.over || this.#leaving) return;
    try {
      const { session } = this.#hall.store;
      if ((await session.read((client) => client.exists(path, this.#selfChanged))) !== null) return;
      // Its coming, which that would tell of, is nothing to wait for.
      session.client.unwatch(path, this.#selfChanged);
      if (this.#place.isOnlyAt(path)) this.#lose();
    } catch {
      // The next heartbeat tells.
    }
  }

  readonly #selfChanged = (): void => {
    if (!this.over && !this.#leaving) void this.#inTurn(() => this.#watchSelf());
  };

  /** Nobody showed a heartbeat for it, or nobody will: taken out as soon as a server can be told. */
  expire(): void {
    if (this.over) return;
    this.#leaving = true;
    this.#finish();
    const { session } = this.#hall.store;
    const remove = (): Promise<unknown> => this.#inTurn(() => this.#place.remove()).catch(again);
    const again = (cause: unknown) => (isRefused(cause, true) ? null : session.afterwards(REMOVE_AGAIN_MS, remove));
    void remove();
  }

  /** Taken out behind our back. */
  #lose(): "gone" {
    if (this.over || this.#leaving) return "gone";
    this.#finish();
    this.#tell("lost");
    return "gone";
  }

  #tell(kind: "lost" | "wake"): void {
    this.#hall.push({ kind, name: this.claim.name, id: this.claim.id });
  }

  #finish(): void {
    this.over = true;
    this.#ending.cancel();
    if (this.#watchingSelf !== null) this.#hall.clock.cancel(this.#watchingSelf);
    this.#lookout.leave();
    this.#hall.left(this);
  }
}
