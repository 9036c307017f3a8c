import type { RenewAnswer, RenewRequest } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { Standing } from "../../queue/turns.js";
import { stateOfOther } from "./claim.js";
import type { Found, NodeClaim, NodeClaims } from "./node-claim.js";
import type { NodeQueue, Nodes } from "./nodes.js";
import type { NodeWatcher } from "./watcher.js";

/** Nodes confirmed in one request: well below the megabyte that a server accepts. */
const CONFIRMED_AT_ONCE = 400;

type Outcome = RenewAnswer | Standing<NodeClaim, Found>;

/** Heartbeats: a write confirms which nodes are there, and queues are read after it. */
export async function confirm(
  nodes: Nodes,
  claims: NodeClaims,
  watcher: NodeWatcher,
  requests: readonly RenewRequest[],
  calledAt: number,
): Promise<readonly Promise<Outcome>[]> {
  const locals = requests.map((request) => claims.get(request));
  const paths = locals.map((local) => local?.path ?? null);
  const confirming = confirmPaths(
    nodes,
    paths.filter((path) => path !== null),
  );
  // After the confirmation in the same session: the queue shows all that was done before it.
  const queues = new Map<string, Promise<NodeQueue>>();
  requests.forEach(({ name }, index) => {
    const local = locals[index];
    if (queues.has(name) || (local !== undefined && !needsQueue(local))) return;
    const queue = nodes.queue(name);
    // Awaited by each that needs it, below; until then its failure must not count as unhandled.
    queue.catch(() => {});
    queues.set(name, queue);
  });
  const there = await confirming;
  return requests.map(async (request, index): Promise<Outcome> => {
    const [local, path, queue = null] = [locals[index], paths[index] ?? null, await queues.get(request.name)];
    if (local === undefined) return queue === null ? { kind: "gone" } : stateOfOther(nodes, watcher, request, queue);
    if (path === null) return { kind: "unknown", cause: new Error("it is still being claimed") };
    if (there.has(path)) return confirmed(claims, watcher, local, request, queue, calledAt);
    if (local.isOnlyAt(path)) claims.lose(local);
    return local.over ? { kind: "gone" } : { kind: "unknown", cause: new Error("its node was being replaced") };
  });
}

/** To see its turn, or the oldest token beside its own. */
function needsQueue({ granted, oldest, exact }: NodeClaim): boolean {
  return !granted || !oldest || exact;
}

async function confirmPaths(nodes: Nodes, paths: readonly string[]): Promise<ReadonlySet<string>> {
  const chunks: string[][] = [[]];
  for (const path of paths) {
    const last = chunks.at(-1) ?? [];
    if (last.length < CONFIRMED_AT_ONCE) last.push(path);
    else chunks.push([path]);
  }
  const there = await Promise.all(
    chunks.map(async (chunk) => {
      const exist = await nodes.session.write((client) => client.confirm(chunk));
      return chunk.filter((_, index) => exist[index]);
    }),
  );
  return new Set(there.flat());
}

/** Its node is there; the queue is as it was after that. */
async function confirmed(
  claims: NodeClaims,
  watcher: NodeWatcher,
  local: NodeClaim,
  request: RenewRequest,
  queue: NodeQueue | null,
  calledAt: number,
): Promise<Outcome> {
  if (calledAt >= local.endsAt) claims.expire(local);
  if (local.over) return { kind: "gone" };
  const found = queue && local.seenIn(queue);
  const holds = local.granted || (found?.own !== undefined && found.queue.holds(found.own));
  const leaseMs = holds ? (request.leaseMs ?? local.request.leaseMs) : waiterLeaseMs(local.request.leaseMs);
  claims.endAt(local, Math.max(local.endsAt, calledAt + leaseMs));
  if (found !== null) return { claim: local, found, leaseMs };
  const { token } = local;
  return { kind: "granted", leftMs: await watcher.leftMs(local, calledAt), token, floor: token };
}
