import {
  AcquireTimeoutError,
  CapacityMismatchError,
  HoldfastError,
  InvalidNameError,
  InvalidOptionError,
  LockLostError,
} from "../core/errors.js";
import { ownerText } from "../core/inspect.js";
import { READERS_MAX } from "../core/limits.js";
import { EXIT, Failure, UsageError } from "./command.js";
import { jsonText, printable } from "./printable.js";
import { hideSecrets } from "./secrets.js";

export function exitCodeOf(error: unknown): number {
  const wrongUse = [UsageError, InvalidNameError, InvalidOptionError, CapacityMismatchError];
  if (wrongUse.some((kind) => error instanceof kind)) return EXIT.usage;
  if (error instanceof Failure) return error.exitCode;
  if (error instanceof AcquireTimeoutError) return EXIT.conflict;
  if (error instanceof LockLostError) return EXIT.lost;
  return error instanceof HoldfastError ? EXIT.unavailable : EXIT.internal;
}

/** What went wrong, on the error output: a line for people, or an object. */
export function printError(error: unknown, json: boolean, more = ""): void {
  const message = hideSecrets(`${messageOf(error)} ${more}`.trimEnd());
  const code = error instanceof HoldfastError ? error.code : undefined;
  const lines = isOurs(error) ? [message] : message.split("\n");
  const line = json ? jsonText({ error: { code, message } }) : `holdfast: ${lines.map(printable).join("\n")}`;
  process.stderr.write(`${line}\n`);
}

/** One of which the message is enough; of any other the whole stack is shown. */
function isOurs(error: unknown): error is Error {
  return error instanceof HoldfastError || error instanceof UsageError || error instanceof Failure;
}

function messageOf(error: unknown): string {
  if (error instanceof CapacityMismatchError) return mismatchOf(error);
  if (error instanceof AcquireTimeoutError) return busyOf(error);
  if (isOurs(error)) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function busyOf({ lock, waitedMs, holder }: AcquireTimeoutError): string {
  const who = holder === undefined ? "" : `, held by ${ownerText(holder)}`;
  return waitedMs > 0
    ? `"${lock}" was not free within ${Math.round(waitedMs) / 1000} s${who}. Wait longer (-w), or see who waits: holdfast show`
    : `"${lock}" is busy${who}. Leave out -n to wait for it, or wait a while with -w SECONDS.`;
}

/** In the words of the command line. */
function mismatchOf({ lock, actual }: CapacityMismatchError): string {
  const kinds: Readonly<Record<number, string>> = { 1: "a mutex", [READERS_MAX]: "a read-write lock" };
  const options: Readonly<Record<number, string>> = { 1: "neither -s, -x nor --semaphore", [READERS_MAX]: "-s or -x" };
  const kind = kinds[actual] ?? `a semaphore of ${actual}`;
  const option = options[actual] ?? `--semaphore ${actual}`;
  return `"${lock}" is in use as ${kind}: all programs must agree on what a name is. Use ${option}, or another name.`;
}
