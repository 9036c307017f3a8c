import { parentPort, workerData } from "node:worker_threads";
import { openTarget } from "./connect.js";
import { backoffMs } from "./core/backoff.js";
import { SystemChance } from "./core/clock.js";
import { Deadlines } from "./core/deadlines.js";
import type { RenewAnswer, RenewRequest } from "./core/engine.js";
import { deadlineOf, renewEveryMs } from "./core/limits.js";
import { Renewable, RenewLoop } from "./core/renew-loop.js";
import { SharedClock, SharedTimes } from "./core/shared-times.js";
import type { FromWorker, ToWorker } from "./core/worker-renewals.js";
import type { WorkerStart } from "./renew-in-worker.js";

// The thread that sends the heartbeats of another one's holds (`renewIn: "worker"`), by a connection of its own and the same loop.

type Added = Extract<ToWorker, { kind: "add" }>;

const { target, options, buffer, stallMs, callTimeoutMs } = workerData as WorkerStart;
const times = new SharedTimes(buffer);
const clock = new SharedClock(times);
const chance = new SystemChance();
const deadlines = new Deadlines(clock);
const holds = new Map<number, RemoteHold>();

function tell(message: FromWorker): void {
  parentPort?.postMessage(message, []);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A hold of the program's, in the thread that renews it. */
class RemoteHold extends Renewable {
  deadline: number;
  readonly #added: Added;
  #leftMs: number;

  constructor(added: Added) {
    super();
    this.#added = added;
    this.#leftMs = added.leftMs;
    this.deadline = deadlineOf(added.heartbeatAt, added.leftMs);
  }

  get everyMs(): number {
    return renewEveryMs(this.#leftMs);
  }

  heartbeat(): RenewRequest {
    const { name, id, leaseMs } = this.#added;
    return { name, id, leaseMs };
  }

  answered(answer: RenewAnswer, sentAt: number): void {
    if (answer.kind === "unknown") return;
    const { slot, token, leaseMs } = this.#added;
    if (answer.kind === "granted" && answer.token === token) {
      this.#leftMs = Math.min(answer.leftMs, leaseMs);
      this.deadline = Math.max(this.deadline, deadlineOf(sentAt, this.#leftMs));
      times.confirm(slot, this.deadline);
    }
    tell({ kind: "answered", slot, answer, sentAt });
  }

  nextMoment(): number {
    return this.#added.until;
  }

  due(now: number): void {
    if (now >= this.#added.until) loop.remove(this);
    else loop.proceed(this, now);
  }
}

/** A program that hangs is not renewed for: it is asked again at the next try. */
async function renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
  const silentMs = times.silentMs();
  if (silentMs > stallMs) throw new Error(`the program's thread has stood still for ${Math.round(silentMs)} ms`);
  return engine.renew(requests);
}

function obey(message: ToWorker): void {
  if (message.kind === "close") {
    loop.stop();
    deadlines.stop();
    void Promise.resolve(engine[Symbol.asyncDispose]()).finally(() => process.exit());
    return;
  }
  const hold = holds.get(message.slot);
  if (message.kind === "add") {
    const added = new RemoteHold(message);
    holds.set(message.slot, added);
    loop.add(added, message.heartbeatAt, clock.now());
  } else if (hold !== undefined && message.kind === "send-soon") loop.sendSoon(hold);
  else if (hold !== undefined) {
    holds.delete(message.slot);
    deadlines.clear(hold.moment);
    loop.remove(hold);
    tell({ kind: "removed", slot: message.slot });
  }
}

const engine = await openTarget(target, options).catch((error: unknown) => {
  tell({ kind: "failed", message: messageOf(error) });
  return process.exit();
});
const loop = new RenewLoop({
  renew,
  clock,
  deadlines,
  limitMs: callTimeoutMs,
  retryDelayMs: () => Math.round(backoffMs(4, chance)),
  unavailable: (cause) => tell({ kind: "unavailable", message: messageOf(cause) }),
});
parentPort?.on("message", obey);
tell({ kind: "ready" });
