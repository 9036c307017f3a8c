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

export function exitCodeOf(error: unknown): number {
  const wrongUse = [UsageError, InvalidNameError, InvalidOptionError, CapacityMismatchError];
  if (wrongUse.some((kind) => error instanceof kind)) return EXIT.usage;
  if (error instanceof Failure) return error.exitCode;
  if (error instanceof AcquireTimeoutError) return EXIT.conflict;
  if (error instanceof LockLostError) return EXIT.lost;
  return error instanceof HoldfastError ? EXIT.unavailable : EXIT.internal;
}

/** What went wrong, on the error output: a line for people, or an object. */
export function tellError(error: unknown, json: boolean, more = ""): void {
  const message = hideSecrets(`${messageOf(error)} ${more}`.trimEnd());
  const code = error instanceof HoldfastError ? error.code : undefined;
  const line = json ? JSON.stringify({ error: { code, message } }) : `holdfast: ${printable(message)}`;
  process.stderr.write(`${line}\n`);
}

function messageOf(error: unknown): string {
  if (error instanceof CapacityMismatchError) return mismatchOf(error);
  if (error instanceof AcquireTimeoutError) return busyOf(error);
  if (error instanceof HoldfastError || error instanceof UsageError || error instanceof Failure) return error.message;
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

/** Accounts and passwords in URLs, wherever a message quotes one; also the password alone. */
export function hideSecrets(message: string): string {
  const hidden = message
    .replace(/([a-z][a-z0-9+]*:\/\/)[^\s/?#"']*@/gi, "$1***@")
    .replace(/([?&](?:password|pass|auth|token|secret)=)[^&\s"']+/gi, "$1***");
  return secrets().reduce((text, secret) => text.replaceAll(secret, "***"), hidden);
}

let url: string | undefined = process.env.HOLDFAST_URL;

/** The store in use, whose password no message may hold. */
export function keepSecret(given: string | undefined): void {
  url = given;
}

function secrets(): string[] {
  const password = /^[a-z][a-z0-9+]*:\/\/[^/?#:@]*:([^/?#]*)@/i.exec(url ?? "")?.[1];
  // Shorter ones would be found in any text.
  if (password === undefined || password.length < 4) return [];
  return [...new Set([password, decoded(password)])];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Names and labels are data: nothing in them may speak to the terminal. */
export function printable(message: string): string {
  // oxlint-disable-next-line no-control-regex
  return message.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}
