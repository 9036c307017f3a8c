// Beyond the common files of an engine: what claim and renew answer is made of nodes that may have to be read first.

import type { ClaimRequest, Fence, Queued } from "../../core/engine.js";
import type { Owner } from "../../core/inspect.js";
import type { QueueEntry } from "../../queue/queue.js";
import type { Known, NodeQueue, Nodes } from "./nodes.js";

/** The token, with the oldest among those that hold beside it. No holders given: it is alone. */
export async function fenceOf(
  nodes: Nodes,
  { name, exact }: Pick<ClaimRequest, "name"> & { readonly exact?: boolean | undefined },
  token: number,
  holders: readonly QueueEntry[],
): Promise<Fence> {
  if (exact === true) {
    const tokens = await Promise.all(holders.map(async (holder) => (await nodes.know(name, holder))?.token));
    const live = [...new Set([token, ...tokens.filter((other) => other !== undefined)])].toSorted((a, b) => a - b);
    return { token, floor: live[0] ?? token, live };
  }
  for (const holder of holders) {
    const known = await nodes.know(name, holder);
    if (known !== null) return { token, floor: Math.min(token, known.token) };
  }
  return { token, floor: token };
}

/** What somebody who waits is told. */
export async function queuedOf(nodes: Nodes, name: string, queue: NodeQueue, own: QueueEntry): Promise<Queued> {
  const { holders } = queue;
  const know = async (holder: QueueEntry | undefined): Promise<Known | null> =>
    holder === undefined ? null : nodes.know(name, holder);
  const [first, last] = await Promise.all([know(holders[0]), know(holders.at(-1))]);
  return {
    kind: "queued",
    lastToken: last?.token ?? 0,
    // Whoever dies is noticed when its session ends; a push tells. Asking then is for a push that was lost.
    nextMs: queue.isFirstWaiter(own) ? nodes.session.timeoutMs : null,
    ...holderOf(first),
  };
}

export function ownerOf(known: Known): Owner {
  return known.owner ?? { client: `session 0x${known.session}`, host: "unknown", pid: 0 };
}

function holderOf(known: Known | null): { holder?: Owner } {
  return known === null ? {} : { holder: ownerOf(known) };
}
