import { checkFunction, checkKnown, checkNumber, shown } from "../core/checks.js";
import type { Client, PushTarget } from "../core/client.js";
import type { Timer } from "../core/clock.js";
import { InvalidOptionError } from "../core/errors.js";
import { LEASE_MIN_MS, TIMER_MAX_MS } from "../core/limits.js";
import { cronTimes, everyTimes, latestDue, type Times } from "./cron.js";
import { type Tick, Ticks, type TicksOptions } from "./ticks.js";

export interface ScheduleOptions extends TicksOptions {
  /** A cron pattern of five fields, or six with seconds first. Needs `croner`. */
  readonly cron?: string;
  /** In place of `cron`: at all multiples of this since 1970. */
  readonly everyMs?: number;
  /** For `cron`; UTC unless said otherwise. */
  readonly timeZone?: string;
  /** If ticks were due while no program of the fleet ran, run the latest of them at the start. */
  readonly catchUp?: boolean;
}

/** However far away the next tick is: look at the calendar this often, somebody may have set it. */
const LOOK_EVERY_MS = 60_000;

/**
 * Each tick is run once in the whole fleet. The store remembers the last tick that was begun, so that programs whose clocks
 * differ agree; a lock keeps two ticks from running side by side. A tick whose program dies is not begun again.
 */
export class Schedule implements AsyncDisposable {
  readonly name: string;
  readonly #client: Client;
  readonly #times: Times;
  readonly #run: (tick: Tick) => unknown;
  readonly #ticks: Ticks;
  readonly #listening: PushTarget;
  #next: number | null;
  #timer: Timer | null = null;
  #stopped = false;
  #running: Promise<void> = Promise.resolve();

  private constructor(
    client: Client,
    name: string,
    times: Times,
    ticks: Ticks,
    next: number | null,
    run: (tick: Tick) => unknown,
  ) {
    this.name = name;
    this.#client = client;
    this.#times = times;
    this.#run = run;
    this.#ticks = ticks;
    const claim = { name, id: client.chance.id() };
    this.#listening = { claim, pushed() {}, clockJumped: () => this.#look(), close: async () => this.#halt() };
    client.addPushTarget(claim.id, this.#listening);
    this.#next = next;
    this.#look();
  }

  /** @internal */
  static async start(
    client: Client,
    name: string,
    options: ScheduleOptions,
    run: (tick: Tick) => unknown,
  ): Promise<Schedule> {
    checkKnown(options, ["cron", "everyMs", "timeZone", "catchUp", "atLeastMs", "atMostForMs", "leaseMs", "label"]);
    checkFunction("run", run);
    const { cron, everyMs, timeZone, catchUp = false, ...rest } = options;
    if (typeof catchUp !== "boolean") throw new InvalidOptionError("catchUp", shown(catchUp), "true or false");
    const ticks = new Ticks(client, name, rest);
    const times = await timesOf(client, cron, everyMs, timeZone);
    const last = catchUp ? ((await ticks.last())?.getTime() ?? null) : null;
    const now = client.clock.wallMs();
    const missed = last === null ? null : latestDue(times, last, now);
    return new Schedule(client, name, times, ticks, missed ?? times.nextAfter(now), run);
  }

  /** When the next tick is, or null when there is none any more. */
  get next(): Date | null {
    return this.#next === null || this.#stopped ? null : new Date(this.#next);
  }

  /** No more ticks here; resolves when the one that runs, if any, has ended. Other programs go on. */
  async stop(): Promise<void> {
    this.#halt();
    await this.#running;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #halt(): void {
    this.#stopped = true;
    if (this.#timer !== null) this.#client.clock.cancel(this.#timer);
    this.#client.removePushTarget(this.#listening.claim.id, this.#listening);
  }

  /** Run what is due, and set the timer for what is next. */
  #look(): void {
    const { clock } = this.#client;
    if (this.#timer !== null) clock.cancel(this.#timer);
    if (this.#stopped || this.#next === null) return;
    const now = clock.wallMs();
    const due = this.#next;
    if (due <= now) {
      const following = this.#times.nextAfter(due);
      // Ticks that were slept through are not made up for, and #tick leaves this one out when the following is due. What is
      // due in this very millisecond was not slept through.
      this.#next = following !== null && following < now ? this.#times.nextAfter(now - 1) : following;
      this.#running = this.#running.then(() => this.#tick(due));
    }
    const leftMs = (this.#next ?? Infinity) - now;
    this.#timer = clock.after(Math.min(LOOK_EVERY_MS, leftMs), () => this.#look());
  }

  /** Never rejects: one tick's failure is told, and the next tick comes. */
  async #tick(at: number): Promise<void> {
    let began = false;
    const run = (tick: Tick): unknown => {
      began = true;
      return this.#run(tick);
    };
    try {
      // Whoever has the lock may die before it begins: wait until the next tick, and see then whether it was done.
      const waitMs = (this.#times.nextAfter(at) ?? Infinity) - this.#client.clock.wallMs();
      if (this.#stopped || waitMs <= 0) return;
      await this.#ticks.runWithin(Math.min(TIMER_MAX_MS, waitMs), at, run, () => this.#stopped);
    } catch (cause) {
      // It left before its turn: another program begins the tick.
      if (this.#stopped && !began) return;
      const message = `the tick of "${this.name}" at ${new Date(at).toISOString()} failed`;
      this.#client.events.emit("warning", () => ({ name: this.name, message, cause }));
    }
  }
}

async function timesOf(client: Client, cron?: string, everyMs?: number, timeZone?: string): Promise<Times> {
  if ((cron === undefined) === (everyMs === undefined)) {
    throw new InvalidOptionError("cron", "a schedule has its times from one of cron and everyMs", "one of the two");
  }
  if (cron !== undefined) return cronTimes(client, cron, timeZone);
  if (timeZone !== undefined) throw new InvalidOptionError("timeZone", "everyMs knows no time zone", "none, or cron");
  return everyTimes(checkNumber("everyMs", everyMs ?? 0, LEASE_MIN_MS, TIMER_MAX_MS, "milliseconds"));
}
