import type { Locks } from "../locks.js";
import { latestDue } from "../recipes/cron.js";
import type { Tick, TicksOptions } from "../recipes/ticks.js";

/** What node-cron (4.6 and later) asks before it runs a task with `distributed: true`. */
export interface NodeCronCoordinator {
  shouldRun(key: string): Promise<boolean>;
  onComplete(key: string): Promise<void>;
}

/** The calls made to a job of croner. */
export type CronerJob = { nextRun(after: Date): Date | null; currentRun(): Date | null };

/** node-cron's key is the name of the task, a colon, and the time of the tick as `toISOString` writes it. */
const KEY = /^(.+):(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/s;

/**
 * For `cron.setRunCoordinator` or a task's `runCoordinator`: each tick of a task once in the whole fleet. The lock is held while the
 * task runs. A store that does not answer is an error, for which node-cron skips the tick.
 */
export function nodeCronCoordinator(locks: Locks, options: TicksOptions = {}): NodeCronCoordinator {
  /** Ends a run, and resolves when its lock was given back. */
  const running = new Map<string, () => Promise<unknown>>();
  return {
    async shouldRun(key) {
      const [, name = key, at] = KEY.exec(key) ?? [];
      const ticks = locks.ticks(name, options);
      return new Promise<boolean>((resolve, reject) => {
        const run = (): Promise<void> =>
          new Promise((completed) => {
            running.set(key, () => {
              completed();
              return given;
            });
            resolve(true);
          });
        const given = ticks.run(at === undefined ? undefined : new Date(at), run);
        // After it ran, a loss is told by `onComplete`.
        given.then(({ ran }) => ran || resolve(false), reject);
      });
    },
    async onComplete(key) {
      const complete = running.get(key);
      running.delete(key);
      await complete?.();
    },
  };
}

/** For a job of croner: `new Cron(pattern, onceInFleet(locks, name, run))`. Each tick once in the whole fleet. */
export function onceInFleet(
  locks: Locks,
  name: string,
  run: (tick: Tick) => unknown,
  options: TicksOptions = {},
): (job: CronerJob) => Promise<void> {
  const ticks = locks.ticks(name, options);
  return async (job) => {
    const now = job.currentRun()?.getTime();
    const times = { nextAfter: (wallMs: number) => job.nextRun(new Date(wallMs))?.getTime() ?? null };
    // By the pattern, not by the clock: a program that is late comes to the same tick.
    const due = now === undefined ? null : latestDue(times, 0, now);
    await ticks.run(due === null ? undefined : new Date(due), run);
  };
}
