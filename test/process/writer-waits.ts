import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { EngineUnavailableError } from "../../src/core/errors.js";
import type { Locks } from "../../src/locks.js";

const PHASE_MS = 200;
const READERS = 6;
/** Where nothing bounds the wait. */
const WAIT_MS = 3000;

type Read = { readonly askedAt: number; startedAt: number; endedAt: number };

export type WriterWaits = {
  readonly tried: number;
  readonly waits: readonly number[];
  /** Readers who asked when a writer was known to stand in the queue, and came in before it. */
  readonly overtook: number;
  readonly text: string;
};

/** Writers, one at a time, among readers of which always some are in; each read is a phase long, or what the machine makes of it. */
export async function writerWaits(locks: Locks, tried: number): Promise<WriterWaits> {
  const lock = locks.readWrite("stream");
  const queues = locks.guarantees.order === "fifo";
  const reads: Read[] = [];
  const reading = new AbortController();
  const readers = Array.from({ length: READERS }, async (_, n) => {
    await sleep((n * PHASE_MS) / READERS);
    while (!reading.signal.aborted) {
      const read = { askedAt: performance.now(), startedAt: Infinity, endedAt: Infinity };
      reads.push(read);
      await lock.read.using(async () => {
        read.startedAt = performance.now();
        await sleep(PHASE_MS);
        read.endedAt = performance.now();
      });
    }
  });
  await sleep(2 * PHASE_MS);
  const waits: number[] = [];
  const afterLast: number[] = [];
  let longest = 0;
  let overtook = 0;
  for (let n = 0; n < tried; n += 1) {
    const askedAt = performance.now();
    let queuedAt = Infinity;
    // Its own id, to know its position in the queue; where there is none, a claim that comes again has another.
    const id = queues ? randomUUID() : undefined;
    const off = locks.on("queued", (event) => {
      if (event.id === id) queuedAt = performance.now();
    });
    const hold = await lock.write
      .tryAcquire({ waitMs: WAIT_MS, ...(id === undefined ? {} : { id }) })
      // A quorum's members have little time to answer: on a busy machine none of them may be in time.
      .catch((error: unknown) => (error instanceof EngineUnavailableError ? null : Promise.reject(error as Error)));
    off();
    const grantedAt = performance.now();
    await hold?.release();
    if (hold !== null) {
      const before = reads.filter((read) => read.startedAt < grantedAt && read.endedAt > askedAt);
      const lastEnd = Math.max(askedAt, ...before.map((read) => read.endedAt));
      waits.push(grantedAt - askedAt);
      afterLast.push(grantedAt - lastEnd);
      longest = Math.max(longest, ...before.map((read) => read.endedAt - read.startedAt));
      overtook += before.filter((read) => read.askedAt > queuedAt).length;
    }
    // Long enough for the readers to be out of step again.
    await sleep(PHASE_MS);
  }
  reading.abort();
  await Promise.all(readers);
  const most = (values: readonly number[]): string => Math.max(0, ...values).toFixed(0);
  const text =
    `${waits.length} of ${tried} writers came in among readers of ${PHASE_MS} ms, after ${most(waits)} ms at most; the ` +
    `longest read before them took ${longest.toFixed(0)} ms, and they followed the last one after ${most(afterLast)} ms at most`;
  return { tried, waits, overtook, text };
}
