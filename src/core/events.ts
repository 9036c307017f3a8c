import { channel } from "node:diagnostics_channel";
import type { LossReason } from "./errors.js";
import type { Owner, Standing } from "./inspect.js";

type Claimed = { readonly name: string; readonly id: string };
type Held = Claimed & { readonly token: number };

/** What happens to claims and holds, told as it happens. */
export type LockEvents = {
  /** A claim waits for its turn. */
  queued: Claimed & { readonly holder?: Owner };
  granted: Held & { readonly waitedMs: number };
  renewed: Held & { readonly remainingMs: number };
  /** Two thirds of the lease passed without a confirmed renewal: start no new work. */
  jeopardy: Held & { readonly remainingMs: number };
  lost: Held & { readonly reason: LossReason };
  /** Given back, or handed over to another process. */
  released: Held & { readonly heldMs: number; readonly handedOver?: true };
  /** This client took a hold from whoever had it, who is told of a loss: by the live view, or by the command line. */
  forceReleased: Held & { readonly holder: Owner };
  /** A quorum: as few members have the hold as may grant it. With its grant, with each heartbeat while it is so, and when it is over. */
  bareMajority: Claimed & Standing;
  /** A claim that left early is known to be out of the store. */
  withdrawn: Claimed;
  /** Nothing new is taken from now on, who waited left, and holders were asked to finish. */
  draining: { readonly graceMs: number };
  /** All have left, or the time is over: then `left` holds are given back now, and lost to whoever works under them. */
  drained: { readonly left: number; readonly tookMs: number };
  /** Callers were refused at once because of this option of `connect`: `refused` of them since the last such event, one a second at most. */
  limited: {
    readonly name: string;
    readonly option: "maxWaiters" | "maxClaims";
    readonly limit: number;
    readonly refused: number;
  };
  /** A call to the store failed or was not answered in time; it is tried again where that makes sense. */
  unavailable: { readonly doing: string; readonly engine: string; readonly cause: unknown };
  /** Nothing broke, but somebody should know. */
  warning: { readonly message: string; readonly name?: string; readonly cause?: unknown };
};

export type LockEventType = keyof LockEvents;

export const EVENT_TYPES = [
  "queued",
  "granted",
  "renewed",
  "jeopardy",
  "lost",
  "released",
  "forceReleased",
  "bareMajority",
  "withdrawn",
  "draining",
  "drained",
  "limited",
  "unavailable",
  "warning",
] as const satisfies readonly LockEventType[];

type Listener<Type extends LockEventType> = (event: LockEvents[Type]) => void;

const CHANNELS = Object.fromEntries(EVENT_TYPES.map((type) => [type, channel(`holdfast:${type}`)])) as Record<
  LockEventType,
  ReturnType<typeof channel>
>;

/** Warnings kept for the first listener: the first ones, which tell what was found while connecting. */
const EARLY_MAX = 20;

/** Typed events of one client, published also on `node:diagnostics_channel` as `holdfast:<type>`. */
export class Events {
  readonly #listeners: { [Type in LockEventType]?: Set<Listener<Type>> } = {};
  /** Warnings from before the first who listens to them: nobody can listen while `connect` is under way. */
  #early: LockEvents["warning"][] = [];

  on<Type extends LockEventType>(type: Type, listener: Listener<Type>): () => void {
    const listeners = (this.#listeners[type] ??= new Set() as never) as Set<Listener<Type>>;
    // A function of its own, so that who listens twice can leave twice.
    const own: Listener<Type> = (event) => listener(event);
    listeners.add(own);
    if (type === "warning") this.#tellEarly(listeners as Set<Listener<"warning">>, own as Listener<"warning">);
    return () => listeners.delete(own);
  }

  /** Whether anybody listens: most programs do not. */
  wants(type: LockEventType): boolean {
    const listeners = this.#listeners[type];
    return CHANNELS[type].hasSubscribers || (listeners !== undefined && listeners.size > 0);
  }

  /** The event is made only when somebody listens. */
  emit<Type extends LockEventType>(type: Type, make: () => LockEvents[Type]): void {
    const listeners = this.#listeners[type];
    const published = CHANNELS[type];
    const unheard = listeners === undefined || listeners.size === 0;
    const early = type === "warning" && unheard && this.#early.length < EARLY_MAX;
    if (!published.hasSubscribers && unheard && !early) return;
    const event = make();
    if (early) this.#early.push(event as LockEvents["warning"]);
    published.publish(event);
    for (const listener of listeners ?? []) tell(listener, event);
  }

  /** Later, when whoever listens has what `on` gives back. */
  #tellEarly(listeners: ReadonlySet<Listener<"warning">>, listener: Listener<"warning">): void {
    for (const event of this.#early.splice(0)) {
      queueMicrotask(() => {
        if (listeners.has(listener)) tell(listener, event);
      });
    }
  }
}

function tell<Event>(listener: (event: Event) => void, event: Event): void {
  try {
    listener(event);
  } catch (error) {
    // A listener's mistake is its program's to see, and must not stop a renewal half way.
    queueMicrotask(() => {
      throw error;
    });
  }
}
