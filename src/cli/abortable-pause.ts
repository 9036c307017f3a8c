import type { Clock } from "../core/clock.js";

/** For so long, or until the signal aborts; leaves no listener behind. */
export function abortablePause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = (): void => {
      clock.cancel(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = clock.after(ms, done);
    signal.addEventListener("abort", done);
  });
}
