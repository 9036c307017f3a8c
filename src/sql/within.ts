import type { Clock } from "../core/clock.js";

/**
 * A time limit for one call: client libraries have none of their own. What arrives after it is given to `late`, because
 * nobody else would clean it up.
 */
export function within<T>(
  clock: Clock,
  limitMs: number,
  call: Promise<T>,
  late: (value: T) => void = () => {},
): Promise<T> {
  return new Promise((resolve, reject) => {
    let over = false;
    const timer = clock.after(Math.max(0, limitMs), () => {
      over = true;
      reject(new Error(`no answer within ${Math.round(limitMs)} ms`));
    });
    call.then(
      (value) => {
        if (over) return late(value);
        clock.cancel(timer);
        resolve(value);
      },
      (cause: unknown) => {
        if (over) return;
        clock.cancel(timer);
        reject(cause instanceof Error ? cause : new Error(String(cause)));
      },
    );
  });
}

export function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => void clock.after(ms, resolve));
}
