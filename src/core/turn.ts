/**
 * Runs later in this turn of the event loop, behind everything that waits for a promise which is settled by now: whoever was
 * granted a lock goes on first, and housekeeping after it.
 */
export function behindOthers(run: () => void): void {
  // Ticks come before promises, except those that a promise asked for.
  queueMicrotask(() => process.nextTick(run));
}
