import type { RenewAnswer, RenewRequest } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { LocalClaims } from "../../queue/local-claims.js";
import { queuedOf } from "./answers.js";
import { goneOf, stateOfOther } from "./claim.js";
import type { NodeClaim } from "./node-claim.js";
import type { NodeQueue, Nodes } from "./nodes.js";

/** Nodes confirmed in one request: well below the megabyte that a server accepts. */
const CONFIRMED_AT_ONCE = 400;

/** Heartbeats: a write confirms which nodes are there, and queues are read after it. */
export async function renew(
  nodes: Nodes,
  claims: LocalClaims<NodeClaim>,
  requests: readonly RenewRequest[],
  calledAt: number,
): Promise<readonly RenewAnswer[]> {
  const locals = requests.map((request) => claims.get(request));
  const paths = locals.map((local) => local?.node.path ?? null);
  const confirming = confirm(
    nodes,
    paths.filter((path) => path !== null),
  );
  // After the confirmation in the same session: the queue shows all that was done before it.
  const queues = new Map<string, Promise<NodeQueue>>();
  requests.forEach(({ name }, index) => {
    const local = locals[index];
    if (queues.has(name) || (local !== undefined && !local.needsQueue)) return;
    const queue = nodes.queue(name);
    // Awaited by each that needs it, below; until then its failure must not count as unhandled.
    queue.catch(() => {});
    queues.set(name, queue);
  });
  const there = await confirming;
  const answers = requests.map(async (request, index): Promise<RenewAnswer> => {
    const [local, path, queue] = [locals[index], paths[index] ?? null, await queues.get(request.name)];
    if (local === undefined) return queue === undefined ? { kind: "gone" } : stateOfOther(nodes, request, queue);
    if (path === null) return { kind: "unknown", cause: new Error("it is still being claimed") };
    const answer = there.has(path)
      ? await confirmed(nodes, local, request, queue ?? null, calledAt)
      : missing(local, path);
    return answer.kind === "gone" ? goneOf(request.id, queue ?? (await nodes.queue(request.name))) : answer;
  });
  return Promise.all(answers.map((answer) => answer.catch((cause: unknown) => ({ kind: "unknown", cause }) as const)));
}

async function confirm(nodes: Nodes, paths: readonly string[]): Promise<ReadonlySet<string>> {
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
  nodes: Nodes,
  local: NodeClaim,
  request: RenewRequest,
  queue: NodeQueue | null,
  calledAt: number,
): Promise<RenewAnswer> {
  if (calledAt >= local.endsAt) local.expire();
  if (local.over) return { kind: "gone" };
  const own = queue?.find(local.node.key);
  if (queue !== null && own !== undefined && queue.holds(own)) local.grant(local, { queue, own });
  const leaseMs = local.granted ? (request.leaseMs ?? local.request.leaseMs) : waiterLeaseMs(local.request.leaseMs);
  local.endAt(Math.max(local.endsAt, calledAt + leaseMs));
  if (local.granted) return local.grantedAnswer(queue, calledAt);
  if (queue === null || own === undefined) throw new Error(`the position of ${local.id} in the queue is not known`);
  local.keepWatching(queue, own);
  return queuedOf(nodes, local.name, queue, own);
}

function missing(local: NodeClaim, path: string): RenewAnswer {
  if (local.node.isOnlyAt(path)) local.lose();
  return local.over ? { kind: "gone" } : { kind: "unknown", cause: new Error("its node was being replaced") };
}
