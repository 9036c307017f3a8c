import type { RenewAnswer, RenewRequest } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { LockFile } from "./lock-file.js";
import type { LockTables } from "./lock-tables.js";

/** Heartbeats that go into one transaction; others may write between two of them. */
const BATCH = 256;

export async function renewAll(file: LockFile, requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
  const answers: RenewAnswer[] = [];
  for (let at = 0; at < requests.length; at += BATCH) {
    const batch = requests.slice(at, at + BATCH);
    try {
      const renewed = await file.write(
        `renewing ${requests.length} claims`,
        (tables) => batch.map((request) => renew(tables, request)),
        (told, events) => batch.forEach((request, n) => events.record(request, told[n]?.kind ?? "unknown")),
      );
      answers.push(...renewed);
    } catch (cause) {
      // The first batch failed: every outcome is unknown. A later one failed: the outcomes from there on are unknown.
      if (at === 0) throw cause;
      return [...answers, ...requests.slice(at).map(() => ({ kind: "unknown", cause }) as const)];
    }
  }
  return answers;
}

function renew(tables: LockTables, request: RenewRequest): RenewAnswer {
  const { now } = tables;
  const { name, claim } = tables.loadCurrent(request);
  if (claim === undefined) return tables.hasTombstone(request) ? { kind: "gone", revoked: true } : { kind: "gone" };
  const { leaseMs } = claim;
  if (claim.holds === 0) {
    tables.extend(name, claim, now + waiterLeaseMs(leaseMs));
  } else {
    tables.extend(name, claim, Math.max(claim.endsAt, now + (request.leaseMs ?? leaseMs)));
    if (request.tokenAtLeast !== undefined) tables.raiseToken(name, claim, request.tokenAtLeast);
  }
  return tables.answer(name, claim);
}
