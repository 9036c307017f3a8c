import { Worker } from "node:worker_threads";
import type { Client, ClientSettings } from "./core/client.js";
import type { Clock } from "./core/clock.js";
import type { Engine } from "./core/engine.js";
import { EngineUnavailableError, InvalidOptionError } from "./core/errors.js";
import { assertRenewableElsewhere } from "./core/renew-in.js";
import { SharedTimes } from "./core/shared-times.js";
import { type FromWorker, type ToWorker, WorkerRenewals } from "./core/worker-renewals.js";

/** What the thread is started with. */
export type WorkerStart = {
  readonly target: string | readonly string[] | undefined;
  readonly options: object;
  readonly buffer: SharedArrayBuffer;
  readonly stallMs: number;
  readonly callTimeoutMs: number;
};

/** For a client of this engine, opened by that URL. */
export function startWorker(
  engine: Engine,
  start: Pick<WorkerStart, "target" | "options" | "stallMs">,
  clock: Clock,
  { maxClaims, callTimeoutMs }: ClientSettings,
): Promise<RenewWorker> {
  assertRenewableElsewhere(engine);
  return RenewWorker.start(engine.kind, maxClaims, { ...start, callTimeoutMs }, clock);
}

/** A thread with a connection of its own, and how to end it. */
class RenewWorker {
  readonly #worker: Worker;
  readonly #times: SharedTimes;
  readonly #stallMs: number;
  readonly #ended: Promise<void>;
  #heard: (message: FromWorker) => void = () => {};
  #lost: (cause: unknown) => void = () => {};
  #closing = false;

  private constructor(worker: Worker, times: SharedTimes, stallMs: number) {
    this.#worker = worker;
    this.#times = times;
    this.#stallMs = stallMs;
    let cause: unknown = new Error("it ended");
    worker.on("message", (message: FromWorker) => this.#heard(message));
    worker.on("error", (error) => (cause = error));
    this.#ended = new Promise((resolve) => {
      worker.on("exit", () => {
        resolve();
        if (!this.#closing) this.#lost(cause);
      });
    });
    // The holds keep a program alive, not the thread that renews them.
    worker.unref();
  }

  /** Resolves when the thread is connected. */
  static async start(
    kind: string,
    maxHolds: number,
    start: Omit<WorkerStart, "buffer">,
    clock: Clock,
  ): Promise<RenewWorker> {
    const times = SharedTimes.of(maxHolds);
    times.progress(clock.now());
    const workerData: WorkerStart = { ...start, buffer: times.buffer };
    const worker = new RenewWorker(startThread(workerData), times, start.stallMs);
    worker.#worker.ref();
    const failure = await new Promise<unknown>((resolve) => {
      worker.#heard = (message) => {
        if (message.kind === "ready") resolve(null);
        if (message.kind === "failed") resolve(new Error(message.message));
      };
      worker.#lost = resolve;
    });
    worker.#worker.unref();
    if (failure === null) return worker;
    await worker.close(clock, start.callTimeoutMs);
    throw new EngineUnavailableError(kind, "connecting the thread that renews (renewIn)", failure);
  }

  /** How a client's holds are renewed from now on. */
  readonly holdLoop = (client: Client): WorkerRenewals => {
    const send = (message: ToWorker): void => this.#worker.postMessage(message, []);
    const renewals = new WorkerRenewals(send, this.#times, client, this.#stallMs);
    const { kind: engine } = client.engine;
    this.#heard = (message) => {
      if (message.kind === "answered") renewals.answered(message.slot, message.answer, message.sentAt);
      if (message.kind === "removed") renewals.removed(message.slot);
      if (message.kind === "unavailable") {
        const cause = new Error(message.message);
        client.events.emit("unavailable", () => ({ doing: "renewing", engine, cause }));
      }
    };
    this.#lost = (cause) => {
      const message = "the thread that renews has ended; the program's own thread renews from now on";
      client.events.emit("warning", () => ({ message, cause }));
      renewals.lostWorker();
    };
    return renewals;
  };

  /** Within the limit: what its connections do not end by then is cut off. */
  async close(clock: Clock, limitMs: number): Promise<void> {
    this.#closing = true;
    this.#worker.postMessage({ kind: "close" } satisfies ToWorker, []);
    const limit = clock.after(limitMs, () => void this.#worker.terminate());
    await this.#ended;
    clock.cancel(limit);
  }
}

function startThread(workerData: WorkerStart): Worker {
  try {
    // Not the program's own flags: some, such as --input-type, are refused for a file.
    const options = { workerData, name: "holdfast renewals", execArgv: [] };
    return new Worker(new URL("./renew-worker.js", import.meta.url), options);
  } catch (error) {
    const unsendable = Object.entries(workerData.options).filter(([, value]) => !isSendable(value));
    const why = error instanceof Error ? error.message : String(error);
    if (unsendable.length === 0) {
      throw new InvalidOptionError("renewIn", `no thread can be started: ${why}`, '"main"');
    }
    // What it says is not shown: it quotes a function, with the password that may stand in it.
    const problem = `${unsendable.map(([name]) => name).join(", ")} cannot be sent to another thread`;
    throw new InvalidOptionError("renewIn", problem, '"worker" with options that are data, without functions');
  }
}

function isSendable(value: unknown): boolean {
  try {
    structuredClone(value);
    return true;
  } catch {
    return false;
  }
}
