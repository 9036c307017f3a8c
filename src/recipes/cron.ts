import { shown } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { InvalidOptionError, UnsupportedError } from "../core/errors.js";

/** When a schedule's ticks are. All programs must come to the same times, whatever their clocks say now. */
export type Times = { nextAfter(wallMs: number): number | null };

/** The calls made to croner. */
type Croner = {
  readonly Cron: new (pattern: string, options: object) => { nextRun(after: Date): Date | null };
};

const LIBRARY = "croner";

// The name is not written into the import, so that a bundler does not demand a library that is not installed.
const loadInstalled = (library: string): Promise<unknown> => import(library);

/** Multiples of `everyMs` since 1970, so that nobody's start matters. */
export function everyTimes(everyMs: number): Times {
  return { nextAfter: (wallMs) => (Math.floor(wallMs / everyMs) + 1) * everyMs };
}

/** The latest tick that is due at `now` and came after `after`, or null. Asks for few times, however long ago `after` is. */
export function latestDue(times: Times, after: number, now: number): number | null {
  for (let backMs = 1_000; ; backMs *= 2) {
    const from = Math.max(after, now - backMs);
    let due: number | null = null;
    for (let at = times.nextAfter(from); at !== null && at <= now; at = times.nextAfter(at)) due = at;
    if (due !== null || from === after) return due;
  }
}

/** A cron pattern in a time zone; UTC unless said otherwise, because the zones of two machines may differ. */
export async function cronTimes(client: Client, cron: string, timeZone = "UTC", load = loadInstalled): Promise<Times> {
  if (typeof cron !== "string") throw new InvalidOptionError("cron", shown(cron), "a cron pattern of 5 or 6 fields");
  const { Cron } = (await load(LIBRARY).catch(() => {
    const missing = "the library that reads cron patterns is not installed";
    throw new UnsupportedError(client.engine.kind, missing, `Run: npm install ${LIBRARY}. Or use everyMs.`);
  })) as Croner;
  try {
    const pattern = new Cron(cron, { timezone: timeZone, paused: true });
    // Time zones are first looked at here.
    pattern.nextRun(new Date(0));
    return { nextAfter: (wallMs) => pattern.nextRun(new Date(wallMs))?.getTime() ?? null };
  } catch (cause) {
    const problem = `${shown(cron)}, in ${timeZone}: ${cause instanceof Error ? cause.message : String(cause)}`;
    throw new InvalidOptionError(
      "cron",
      problem,
      "a cron pattern of 5 or 6 fields, and a time zone such as Europe/Paris",
    );
  }
}
