/** Who is to be told when a signal aborts, and the one listener that tells them all. */
type Shared = { readonly runs: Set<() => void>; readonly tell: () => void };

const shared = new WeakMap<AbortSignal, Shared>();

/**
 * Calls `run` when the signal aborts, in the order of these calls; the answer undoes it. Any number of waits may share a
 * signal, and it gets one listener for all of them: Node.js warns of a leak when a signal has more than ten.
 */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const one = shared.get(signal) ?? listen(signal);
  // The same function may be given twice.
  const told = (): void => run();
  one.runs.add(told);
  return () => {
    if (!one.runs.delete(told) || one.runs.size > 0) return;
    signal.removeEventListener("abort", one.tell);
    shared.delete(signal);
  };
}

function listen(signal: AbortSignal): Shared {
  const runs = new Set<() => void>();
  const tell = (): void => {
    for (const run of runs) run();
  };
  const one = { runs, tell };
  signal.addEventListener("abort", tell);
  shared.set(signal, one);
  return one;
}
