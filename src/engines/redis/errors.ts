import { EngineRefusedError } from "../../core/errors.js";
import type { RedisDriver } from "./driver.js";

/** What Redis answers when asking again will not help, by the word its error begins with, and what to do about it. */
const FOR_GOOD: Readonly<Record<string, string>> = {
  NOAUTH: "Give the client a user and a password.",
  WRONGPASS: "Check the user and the password that the client was given.",
  NOPERM: "Give the user the rights in docs/rights/redis.acl: commands, keys and channels.",
  DENIED: "The server is in protected mode: give it a password, or connect from its own machine.",
  WRONGTYPE: "Another program uses this key; choose another name or another prefix.",
  CROSSSLOT: "A Cluster stands behind this address: use a Cluster client, or a redis+cluster: URL.",
};

/** The same for those that begin with ERR or with nothing. */
const FOR_GOOD_TEXTS: readonly (readonly [text: RegExp, advice: string])[] = [
  [
    /unknown command called from|unknown redis command/i,
    "A command that the scripts need is renamed or off; see docs/engines/redis.md.",
  ],
  [/^ERR unknown command|^ERR This instance has/i, "Use a Redis server of version 6.2 or later."],
  [/ACL failure in script|executing the script can't (run|access)/i, FOR_GOOD["NOPERM"] ?? ""],
  [/DB index is out of range/i, "The server has no such database; change the number in the URL."],
];

/** What passes, or is repaired while we ask again; and what there is to say about it. */
const PASSING: Readonly<Record<string, string>> = {
  OOM: "the server's memory is full: raise maxmemory, or remove keys",
  MISCONF: "the server cannot write to its disk and takes no writes: free some space, or see its log",
  NOREPLICAS: "too few replicas are in step (min-replicas-to-write)",
  READONLY: "the server is a replica now: the client looks for the new primary",
  LOADING: "the server is still reading its data",
  BUSY: "a script of some program runs for too long there (SCRIPT KILL ends it)",
  CLUSTERDOWN: "a part of the Cluster is down",
  MASTERDOWN: "the replica has lost its primary",
  TRYAGAIN: "the slot is moving to another node",
};

/** A Cluster's node tells where the key is; a Cluster client goes there, and any other never will. */
const MOVED = "This server is a node of a Cluster: use a Cluster client, or a redis+cluster: URL.";

/**
 * A refusal for good as `EngineRefusedError`; anything else (a lost connection, and what passes) as an error that says "not
 * known, ask again". Never the library's own error object: that one carries the command's arguments, which for AUTH are a
 * password.
 */
export function translateError(cause: unknown, topology: RedisDriver["topology"] = "cluster"): Error {
  if (cause instanceof EngineRefusedError) return cause;
  if (!(cause instanceof Error)) return new Error(String(cause));
  const message = unwrapped(innermost(cause));
  const word = /^[A-Z]+/.exec(message)?.[0] ?? "";
  const advice = word === "MOVED" && topology !== "cluster" ? MOVED : adviceFor(word, message);
  if (advice !== undefined) return new EngineRefusedError("redis", advice, new Error(message));
  const passing = PASSING[word];
  return new Error(passing === undefined ? message : `${message.replace(/\.$/, "")}: ${passing}`);
}

function adviceFor(word: string, message: string): string | undefined {
  return FOR_GOOD[word] ?? FOR_GOOD_TEXTS.find(([text]) => text.test(message))?.[1];
}

/** The word of an error that was raised inside a script: before version 7 the place stands before it, since then behind it. */
function unwrapped(message: string): string {
  return message
    .replace(/^(ERR Error running script.*?)?@?user_script: ?\d+: (@user_script: ?\d+: )?-?/, "")
    .replace(/ script: [0-9a-f]{40}, on @user_script:\d+\.$/, "");
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

/** "error <message>": one request of several failed by itself. */
export function throwIfErrorText(text: string): void {
  if (text.startsWith("error ")) throw translateError(new Error(text.slice("error ".length)));
}

export function isNoScript(cause: unknown): boolean {
  return cause instanceof Error && cause.message.startsWith("NOSCRIPT");
}
