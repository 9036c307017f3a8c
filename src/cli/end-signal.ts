/** Aborted by Ctrl-C and its like, and when nobody reads the output any more. */
export function endSignal(): AbortSignal {
  const end = new AbortController();
  // Not once: timeout(1) and terminals may send a signal twice, and the second must not cut the ending short.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => end.abort());
  process.stdout.once("error", () => end.abort());
  return end.signal;
}
