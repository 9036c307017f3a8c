import type { ClaimAnswer, ClaimRef, ClaimRequest, RenewAnswer } from "../../core/engine.js";
import { fenceOf, holderOf, queuedOf } from "../../queue/answers.js";
import type { QueueEntry } from "../../queue/queue.js";
import type { Standing } from "../../queue/turns.js";
import { isRefused } from "./errors.js";
import { type Found, NodeClaim, type NodeClaims } from "./node-claim.js";
import type { NodeQueue, Nodes } from "./nodes.js";
import type { NodeWatcher } from "./watcher.js";

type Outcome = ClaimAnswer | Standing<NodeClaim, Found>;

/** Asks for a claim, or asks again. */
export async function append(
  nodes: Nodes,
  claims: NodeClaims,
  watcher: NodeWatcher,
  request: ClaimRequest,
  calledAt: number,
): Promise<Outcome> {
  const local = claims.get(request) ?? claims.add(new NodeClaim(nodes, request));
  try {
    const outcome = await local.inTurn(async () => {
      if (local.over) return { kind: "gone" } as const;
      local.askedAt = Math.min(local.askedAt, calledAt);
      // Also when the queue could not be read: the node may be there all the same.
      const [queue, buried] = await local.append().finally(() => claims.appended(local));
      return admit(claims, watcher, local, queue, buried);
    });
    return outcome ?? (await knownElsewhere(nodes, watcher, request));
  } catch (error) {
    // An answer: nobody will release a node that may be there all the same.
    if (isRefused(error)) claims.expire(local);
    throw error;
  }
}

/** Null: somebody else has this id already, and this claim is over. */
async function admit(
  claims: NodeClaims,
  watcher: NodeWatcher,
  local: NodeClaim,
  queue: NodeQueue,
  buried: boolean,
): Promise<Outcome | null> {
  const { name, id, capacity, leaseMs, wait } = local.request;
  // Its session or its lease ended while its node was created: nobody would remove it.
  if (local.over) return refuse(claims, local, { kind: "gone" });
  const found = local.seenIn(queue);
  const { own } = found;
  const copy = queue.byId(id);
  // Its own node may have been removed for that before, and the answer lost.
  if (own === undefined && !local.admitted && copy !== undefined) return refuse(claims, local, null);
  if (own === undefined || local.admitted) return { claim: local, found, leaseMs };
  if (buried) return refuse(claims, local, { kind: "gone" });
  if (copy !== undefined && copy !== own) return refuse(claims, local, null);
  if (queue.limit !== capacity) return refuse(claims, local, { kind: "mismatch", capacity: queue.limit });
  if (queue.holds(own)) claims.endAt(local, local.askedAt + leaseMs);
  else if (!wait) {
    const [holder] = await Promise.all([holderOf(watcher, name, queue), refuse(claims, local, null)]);
    return { kind: "busy", ...holder };
  }
  local.admitted = true;
  countOnEachOther(claims, local, queue, own);
  return { claim: local, found, leaseMs, arrived: true };
}

/**
 * A queue in which only ours stand is known without reading as long as each of them is watched. Where others do, it is read anyway: then
 * only those of ours are watched at once for which somebody waits.
 */
function countOnEachOther(claims: NodeClaims, local: NodeClaim, queue: NodeQueue, own: QueueEntry): void {
  const before = queue.before(own);
  if (before === undefined) return;
  const ahead = claims.ownOf(local.name, before);
  if (ahead !== undefined) claims.countOn(ahead);
  if (claims.countOf(local.name) >= queue.entries.length) claims.countOn(local);
}

async function refuse<T extends ClaimAnswer | null>(claims: NodeClaims, local: NodeClaim, answer: T): Promise<T> {
  claims.stopWatching(local);
  // What could not be removed may be asked for again.
  await local.remove();
  claims.forget(local);
  return answer;
}

async function knownElsewhere(nodes: Nodes, watcher: NodeWatcher, request: ClaimRequest): Promise<ClaimAnswer> {
  const answer = await stateOfOther(nodes, watcher, request, await nodes.queueNow(request.name));
  if (answer.kind === "unknown") throw answer.cause;
  return answer;
}

/** A claim of another client: it can be read, but only its own client keeps it alive, so it has no time left here. */
export async function stateOfOther(
  nodes: Nodes,
  watcher: NodeWatcher,
  { name, id }: ClaimRef,
  queue: NodeQueue,
): Promise<RenewAnswer> {
  const entry = queue.byId(id);
  if (entry === undefined) return { kind: "gone" };
  const known = await nodes.know(name, entry);
  if (known === null) return { kind: "gone" };
  if (!queue.holds(entry)) return queuedOf(watcher, name, queue, entry, known.token);
  const fence = await fenceOf(watcher, { name, exact: known.exact === true }, known.token, queue.holders);
  return { kind: "granted", leftMs: 0, ...fence };
}
