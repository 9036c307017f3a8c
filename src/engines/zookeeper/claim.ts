import type { ClaimAnswer, ClaimRef, ClaimRequest, Gone, RenewAnswer } from "../../core/engine.js";
import { fenceOf, queuedOf } from "./answers.js";
import { isRefused } from "./errors.js";
import type { NodeClaim } from "./node-claim.js";
import type { NodeQueue, Nodes } from "./nodes.js";

/** Asks for a claim, or asks again. */
export async function claim(nodes: Nodes, local: NodeClaim, calledAt: number): Promise<ClaimAnswer> {
  try {
    return (await enter(nodes, local, calledAt)) ?? (await knownElsewhere(nodes, local.request));
  } catch (error) {
    // An answer: nobody will release a node that may be there all the same.
    if (isRefused(error)) local.expire();
    throw error;
  }
}

/** Null: somebody else has this id already, and this claim is over. */
function enter(nodes: Nodes, local: NodeClaim, calledAt: number): Promise<ClaimAnswer | null> {
  return local.inTurn(async () => {
    if (local.over) return { kind: "gone" };
    local.askedAt = Math.min(local.askedAt, calledAt);
    // Also when the queue could not be read: the node may be there all the same.
    const queue = await local.node.append().finally(() => local.appended());
    return admit(nodes, local, queue, calledAt);
  });
}

async function admit(nodes: Nodes, local: NodeClaim, queue: NodeQueue, calledAt: number): Promise<ClaimAnswer | null> {
  const { name, id, capacity, leaseMs, wait } = local.request;
  // Its session or its lease ended while its node was created: nobody would remove it.
  if (local.over) return refuse(local, { kind: "gone" });
  const own = queue.find(local.node.key);
  if (own === undefined) {
    local.lose();
    return { kind: "gone" };
  }
  if (!local.admitted) {
    const copy = queue.byId(id);
    if (queue.hasTombstone(id)) return refuse(local, { kind: "gone" });
    if (copy !== undefined && copy !== own) return refuse(local, null);
    if (queue.limit !== capacity) return refuse(local, { kind: "mismatch", capacity: queue.limit });
    if (queue.holds(own)) {
      local.grant(local, { queue, own });
      local.endAt(local.askedAt + leaseMs);
    } else if (!wait) {
      const [{ holder }] = await Promise.all([queuedOf(nodes, name, queue, own), refuse(local, null)]);
      return { kind: "busy", ...(holder === undefined ? {} : { holder }) };
    }
    local.admitted = true;
  }
  const found = await local.awaitTurn(queue);
  if (found?.own === undefined) return { kind: "gone" };
  return local.granted ? local.grantedAnswer(found.queue, calledAt) : queuedOf(nodes, name, found.queue, found.own);
}

async function refuse<T extends ClaimAnswer | null>(local: NodeClaim, answer: T): Promise<T> {
  local.leaving = true;
  // What could not be removed may be asked for again.
  await local.node.remove().finally(() => (local.leaving = false));
  local.finish();
  return answer;
}

async function knownElsewhere(nodes: Nodes, request: ClaimRequest): Promise<ClaimAnswer> {
  const answer = await stateOfOther(nodes, request, await nodes.queueNow(request.name));
  if (answer.kind === "unknown") throw answer.cause;
  // A claim is not told why.
  return answer.kind === "gone" ? { kind: "gone" } : answer;
}

/** A claim of another client: it can be read, but only its own client keeps it alive, so it has no time left here. */
export async function stateOfOther(nodes: Nodes, { name, id }: ClaimRef, queue: NodeQueue): Promise<RenewAnswer> {
  const entry = queue.byId(id);
  if (entry === undefined) return goneOf(id, queue);
  if (!queue.holds(entry)) return queuedOf(nodes, name, queue, entry);
  const known = await nodes.know(name, entry);
  if (known === null) return goneOf(id, await nodes.queue(name));
  const fence = await fenceOf(nodes, { name, exact: known.exact }, known.token, queue.holders);
  return { kind: "granted", leftMs: 0, ...fence };
}

/** A claim without a node. With a tombstone, somebody released it. */
export function goneOf(id: string, queue: NodeQueue): Gone {
  return queue.hasTombstone(id) ? { kind: "gone", revoked: true } : { kind: "gone" };
}
