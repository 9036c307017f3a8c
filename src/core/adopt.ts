import type { Client, PushTarget } from "./client.js";
import type { RenewAnswer } from "./engine.js";
import { ClaimEndedError, EngineUnavailableError } from "./errors.js";
import { Grant } from "./grant.js";
import type { HandOver } from "./hand-over.js";
import { deadlineOf } from "./limits.js";
import { HoldTracing, wantsHolds } from "./tracing.js";

/** Continue a hold that another process handed over. */
export async function adopt(client: Client, data: HandOver): Promise<Grant> {
  const { name, id, units, capacity, leaseMs, renew, maxHoldMs } = data;
  const doing = `adopting "${name}"`;
  client.assertTaking(doing);
  client.limits.assertRoom(name, false);
  client.assertUnused(name, id);
  const claim = { name, id, units, capacity, leaseMs, wait: false, owner: client.owner };
  let lost = false;
  // Kept from the first moment on: nobody else here may adopt it, and a loss pushed meanwhile counts.
  const adopting: PushTarget = {
    claim,
    pushed: ({ kind }) => void (lost ||= kind === "lost"),
    clockJumped() {},
    async close() {},
  };
  client.addPushTarget(id, adopting);
  try {
    const call = async (): Promise<RenewAnswer | undefined> => {
      const [renewal] = await client.engine.renew([{ name, id, leaseMs }]);
      // Held by a local hand-over that the store has not heard of yet: it is asked again.
      if (renewal?.kind === "queued") throw new Error(`the claim before "${name}" has not left yet`);
      return renewal;
    };
    const { answer: renewal, sentAt } = await client.ask(doing, call);
    client.assertOpen(doing);
    if (renewal === undefined || renewal.kind === "unknown") {
      throw new EngineUnavailableError(client.engine.kind, doing, renewal?.cause);
    }
    if (renewal.kind !== "granted" || lost) throw new ClaimEndedError(name, id);
    const leftMs = Math.min(renewal.leftMs, leaseMs);
    const now = client.clock.now();
    if (deadlineOf(sentAt, leftMs) <= now) throw new ClaimEndedError(name, id);
    const lease = { leftMs, sentAt, tombstone: "always", relay: null } as const;
    const grant = new Grant(client, claim, { renew, maxHoldMs }, renewal, lease, now);
    client.events.emit("granted", () => ({ name, id, token: grant.token, waitedMs: 0 }));
    if (wantsHolds()) HoldTracing.start(grant, undefined, undefined);
    return grant;
  } finally {
    client.removePushTarget(id, adopting);
  }
}
