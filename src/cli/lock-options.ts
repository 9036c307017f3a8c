import type { Client } from "../core/client.js";
import { Hold } from "../core/hold.js";
import { READERS_MAX } from "../core/limits.js";
import { checkName } from "../core/name.js";
import type { AcquireOptions, Ask } from "../core/options.js";
import { Lock } from "../recipes/lock.js";
import { flag, type Given, type Options, seconds, UsageError, whole } from "./command.js";

/** How a lock is taken: shared by `run` and `hold`. */
export const LOCK_OPTIONS: Options = {
  "no-wait": { type: "boolean", short: "n", help: "fail at once when the lock is busy" },
  wait: { type: "string", short: "w", value: "SECONDS", help: "fail after this long" },
  shared: { type: "boolean", short: "s", help: "the read side of a read-write lock" },
  exclusive: { type: "boolean", short: "x", help: "the write side of a read-write lock" },
  semaphore: { type: "string", value: "N", help: "at most N at a time instead of one" },
  permits: { type: "string", value: "K", help: "take K of the semaphore's permits (1)" },
  "conflict-exit-code": { type: "string", short: "E", value: "CODE", help: "exit code when the lock is busy (1)" },
  lease: { type: "string", value: "SECONDS", help: "how long the store waits for a heartbeat (10)" },
  "max-hold": { type: "string", value: "SECONDS", help: "after this the lock is renewed no more" },
  label: { type: "string", value: "TEXT", help: "shown to others; else the command's name" },
};

export function lockOf(client: Client, given: Given, name: string): Lock<Hold> {
  const ask: Ask = { name: checkName(name), ...sizeOf(given) };
  return new Lock(client, { ask, reentrant: false, hold: Hold, mine: () => true });
}

function sizeOf(given: Given): Pick<Ask, "units" | "capacity"> {
  const [shared, exclusive] = [flag(given, "shared"), flag(given, "exclusive")];
  const capacity = whole(given, "semaphore", 1, READERS_MAX - 1);
  const permits = whole(given, "permits", 1, capacity ?? 1);
  if ([shared, exclusive, capacity !== undefined].filter(Boolean).length > 1) {
    throw new UsageError("-s, -x and --semaphore exclude each other");
  }
  if (permits !== undefined && capacity === undefined) throw new UsageError("--permits goes with --semaphore");
  if (shared || exclusive) return { units: shared ? 1 : READERS_MAX, capacity: READERS_MAX };
  return { units: permits ?? 1, capacity: capacity ?? 1 };
}

export function acquireOptionsOf(given: Given): AcquireOptions {
  const [waitMs, leaseMs, maxHoldMs] = [seconds(given, "wait"), seconds(given, "lease"), seconds(given, "max-hold")];
  if (flag(given, "no-wait") && waitMs !== undefined) throw new UsageError("-n and -w exclude each other");
  return {
    ...(flag(given, "no-wait") ? { waitMs: 0 } : waitMs === undefined ? {} : { waitMs }),
    ...(leaseMs === undefined ? {} : { leaseMs }),
    ...(maxHoldMs === undefined ? {} : { maxHoldMs }),
  };
}

export const conflictCodeOf = (given: Given, usual: number): number =>
  whole(given, "conflict-exit-code", 0, 255) ?? usual;
