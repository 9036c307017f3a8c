import { Pair } from "./compare/pair.js";
import { RealTimePair, realTimeCommands } from "./compare/real-time.js";
import { Session } from "./compare/session.js";
import { virtualCommands } from "./compare/virtual.js";
import type { Setting } from "./conformance/kit.js";

export type CompareOptions = Setting & {
  readonly runs?: number;
  readonly maxCommands?: number;
  /** Of a run to repeat; a failure prints all three. */
  readonly seed?: number;
  readonly path?: string;
  readonly replayPath?: string;
  /** False: the first difference is told as it was found. */
  readonly shrink?: boolean;
  /** No new run begins after this, and shrinking stops: what was found is told while somebody still listens. */
  readonly withinMs?: number;
  /** Told at the end: how many requests were answered by both. */
  readonly onCompared?: (requests: number) => void;
};

/**
 * Any engine against the reference, request by request: random commands of two clients (fast-check shrinks what fails),
 * each answered by both, and every answer compared.
 *
 * With a shared fake clock everything is compared exactly: tokens, time left, what is pushed, what `inspect` shows. Time
 * passes at random, so leases, waiters and marks end within a run; what one client asks in one tick must then reach the
 * store in that order. In real time leases either last the whole run or are waited for, so that a slow machine changes
 * nothing, and tokens are compared by their order.
 */
export async function compareWithReference(options: CompareOptions): Promise<void> {
  const fc: typeof import("fast-check") = await import("fast-check");
  const { seed, path, replayPath, withinMs, clock } = options;
  const replay = replayPath === undefined ? {} : { replayPath };
  const repeat = { ...(seed === undefined ? {} : { seed }), ...(path === undefined ? {} : { path }) };
  // A slow machine gets fewer runs done, and that is no failure; none at all is one.
  const limit = withinMs === undefined ? {} : { interruptAfterTimeLimit: withinMs };
  const endOnFailure = options.shrink === false;
  const parameters = { numRuns: options.runs ?? 100, includeErrorInReport: true, endOnFailure, ...repeat, ...limit };

  if (clock === undefined) {
    const commands = realTimeCommands(fc, { maxCommands: options.maxCommands ?? 40, size: "max", ...replay });
    let requests = 0;
    const property = fc.asyncProperty(commands, async (all) => {
      const pair = await RealTimePair.open(options);
      try {
        await fc.asyncModelRun(() => ({ model: {}, real: pair }), all);
      } catch (error) {
        // On a machine that stood still for so long claims die that live on in the reference: such a run says nothing.
        fc.pre(!pair.stalled);
        throw error;
      } finally {
        requests += pair.requests;
        await pair.close();
      }
    });
    await fc.assert(property, parameters);
    options.onCompared?.(requests);
    return;
  }

  const commands = virtualCommands(fc, { maxCommands: options.maxCommands ?? 80, size: "max", ...replay });
  const session = await Session.open(options, clock);
  try {
    const property = fc.asyncProperty(commands, async (all) => {
      const pair = new Pair(session);
      try {
        await fc.asyncModelRun(() => ({ model: {}, real: pair }), all);
        await pair.end();
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        throw new Error(`${message}\n\nThis was asked and answered:\n${pair.log.join("\n")}\n`, { cause: error });
      }
    });
    await fc.assert(property, parameters);
    options.onCompared?.(session.compared);
  } finally {
    await session.close();
  }
}
