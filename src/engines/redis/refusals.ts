import { EngineRefusedError } from "../../core/errors.js";

/** What Redis answers when asking again will not help, by the word its error begins with, and what to do about it. */
const REFUSALS: Readonly<Record<string, string>> = {
  NOAUTH: "Give the client a user and a password.",
  WRONGPASS: "Check the user and the password that the client was given.",
  NOPERM: "Give the user the commands, keys and channels listed in docs/engines/redis.md.",
  WRONGTYPE: "Another program uses this key; choose another name or another prefix.",
  MISCONF: "The server cannot write to its disk; free some space or change its configuration.",
  OOM: "The server's memory is full; raise maxmemory.",
};

/**
 * A refusal for good as `EngineRefusedError`; anything else (a lost connection, LOADING, READONLY during a fail-over,
 * CLUSTERDOWN, TRYAGAIN) as an error that says "not known, ask again". Never the library's own error object: that one
 * carries the command's arguments, which for AUTH are a password.
 */
export function translated(cause: unknown): Error {
  if (cause instanceof EngineRefusedError) return cause;
  if (!(cause instanceof Error)) return new Error(String(cause));
  const message = innermost(cause);
  const word = /^[A-Z]+/.exec(message)?.[0] ?? "";
  const advice = /^ERR unknown command|^ERR This instance has/.test(message)
    ? "Use a Redis server of version 6.2 or later."
    : REFUSALS[word];
  return advice === undefined ? new Error(message) : new EngineRefusedError("redis", advice, new Error(message));
}

/** Libraries wrap: the message of the first cause says most. */
function innermost(error: Error): string {
  const { cause } = error;
  const inner = cause instanceof Error && cause !== error ? innermost(cause) : "";
  if (inner !== "") return inner;
  // A failed connection to several addresses has no message of its own.
  const { errors } = error as { errors?: readonly unknown[] };
  const [first] = errors ?? [];
  return error.message || (first instanceof Error ? first.message : error.name);
}

export function isNoScript(cause: unknown): boolean {
  return cause instanceof Error && cause.message.startsWith("NOSCRIPT");
}
