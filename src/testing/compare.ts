import type { AsyncCommand } from "fast-check";
import { realTimeCommands } from "./compare/real-time-commands.js";
import { RealTimePair } from "./compare/real-time-pair.js";
import { Session } from "./compare/session.js";
import { virtualCommands } from "./compare/virtual-commands.js";
import { VirtualPair } from "./compare/virtual-pair.js";
import type { Setting } from "./conformance/kit.js";

export type CompareOptions = Setting & {
  readonly runs?: number;
  readonly maxCommands?: number;
  /** Of a run to repeat; a failure prints all three. */
  readonly seed?: number;
  readonly path?: string;
  readonly replayPath?: string;
  /** False: the first difference is reported as it was found. */
  readonly shrink?: boolean;
  /** No new run begins after this, and shrinking stops: what was found is reported before a test runner gives up. */
  readonly withinMs?: number;
  /** Called at the end: how many calls were answered by both. */
  readonly onCompared?: (calls: number) => void;
};

/** The engine under test and the reference for one run. */
type Pair = {
  /** The machine stood still for so long that claims may have died which live on in the reference: such a run says nothing. */
  readonly stalled: boolean;
  /** What was called and answered, for whoever has to understand a difference. */
  readonly log: readonly string[];
  /** After a run without a difference: nothing may be left over. */
  end(): Promise<void>;
  close(): Promise<void>;
};

/**
 * Any engine against the reference, call by call: random commands of two clients (fast-check shrinks what fails), each
 * answered by both, and every answer compared.
 *
 * With a shared fake clock everything is compared exactly: tokens, time left, what is pushed, what `inspect` shows. Time
 * passes at random, so leases, waiters and tombstones end within a run; what one client sends in one tick must then reach the
 * store in that order. In real time leases either last the whole run or are waited for, so that a slow machine changes
 * nothing, and tokens are compared by their order.
 */
export async function compareWithReference(options: CompareOptions): Promise<void> {
  const fc: typeof import("fast-check") = await import("fast-check");
  const { seed, path, replayPath, withinMs, clock, maxCommands } = options;
  const replay = replayPath === undefined ? {} : { replayPath };
  const repeat = { ...(seed === undefined ? {} : { seed }), ...(path === undefined ? {} : { path }) };
  // A slow machine gets fewer runs done, and that is no failure; none at all is one.
  const limit = withinMs === undefined ? {} : { interruptAfterTimeLimit: withinMs };
  const endOnFailure = options.shrink === false;
  const parameters = { numRuns: options.runs ?? 100, includeErrorInReport: true, endOnFailure, ...repeat, ...limit };

  /** Runs the commands on a pair of their own, and closes it. */
  async function run<P extends Pair>(pair: P, commands: Iterable<AsyncCommand<object, P>>): Promise<void> {
    try {
      await fc.asyncModelRun(() => ({ model: {}, real: pair }), commands);
      await pair.end();
    } catch (error) {
      fc.pre(!pair.stalled);
      const message = error instanceof Error ? error.message : String(error);
      throw new Error(`${message}\n\nThis was asked and answered:\n${pair.log.join("\n")}\n`, { cause: error });
    } finally {
      await pair.close();
    }
  }

  let compared = 0;
  if (clock === undefined) {
    const commands = realTimeCommands(fc, { maxCommands: maxCommands ?? 40, size: "max", ...replay });
    const property = fc.asyncProperty(commands, async (all) => {
      const pair = await RealTimePair.open(options);
      await run(pair, all).finally(() => (compared += pair.compared));
    });
    await fc.assert(property, parameters);
  } else {
    const commands = virtualCommands(fc, { maxCommands: maxCommands ?? 80, size: "max", ...replay });
    const session = await Session.open(options, clock);
    try {
      await fc.assert(
        fc.asyncProperty(commands, (all) => run(new VirtualPair(session), all)),
        parameters,
      );
      compared = session.compared;
    } finally {
      await session.close();
    }
  }
  options.onCompared?.(compared);
}
