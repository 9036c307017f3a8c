// What to copy: a run of a job holds the lock of its id, and whose lock is free is not running.

/** Runs `work` with the job's lock. A second run of the same job waits until the first has ended, or its lease has. */
export async function guarded(locks, id, work) {
  return locks.mutex(`job:${id}`).using((hold) => work(hold));
}

/** For queues without heartbeats: hands back each job that counts as running and whose lock nobody holds. */
export async function rescue(locks, active) {
  for (const { id, handBack } of await active()) {
    const hold = await locks.mutex(`job:${id}`).tryAcquire();
    // With the lock in the hand: no run begins in between.
    if (hold) await handBack().finally(() => hold.release());
  }
}
