// Beyond the common files of an engine: the capacity of a busy name is kept in the data of its folder.

import { type CapacityChange, capacityText, waitersAbove } from "../../queue/capacity.js";
import type { QueueEntry } from "../../queue/queue.js";
import { CODE, hasCode } from "./errors.js";
import type { NodeQueue, Nodes } from "./nodes.js";

/** Changes the data of the folder. False when somebody else did so at the same time. */
export async function changeCapacity(
  nodes: Nodes,
  name: string,
  to: number,
  before: NodeQueue,
  change: CapacityChange<QueueEntry>,
): Promise<boolean> {
  const written = change.write ? await write(nodes, name, before.limit, to) : before;
  if (written === null) return false;
  const drops = waitersAbove(await nodes.queue(name), to);
  await Promise.all(drops.map((entry) => nodes.remove(nodes.nodePath(name, entry.key))));
  await touch(nodes, name, written.holders.at(-1));
  return true;
}

/** The queue before the change. Null when somebody else set it at the same time: read the queue again. */
async function write(nodes: Nodes, name: string, before: number, to: number): Promise<NodeQueue | null> {
  const parent = nodes.pathOf(name);
  const version = (await nodes.session.read((client) => client.exists(parent)))?.version;
  const queue = await nodes.queue(name);
  if (version === undefined || queue.limit !== before) return null;
  const heldUpTo = queue.holders.at(-1)?.order ?? null;
  const data = Buffer.from(capacityText({ capacity: to, heldUpTo }));
  try {
    await nodes.session.write((client) => client.set(parent, data, version));
    return queue;
  } catch (error) {
    if (hasCode(error, CODE.badVersion, CODE.noNode)) return null;
    throw error;
  }
}

/** The first waiter watches the last holder: a change of its node asks for a lookup. */
async function touch(nodes: Nodes, name: string, holder: QueueEntry | undefined): Promise<void> {
  if (holder === undefined) return;
  const path = nodes.nodePath(name, holder.key);
  const node = await nodes.session.read((client) => client.get(path));
  // Its end wakes just as well, and a poll follows in any case.
  if (node !== null) await nodes.session.write((client) => client.set(path, node.data)).catch(() => {});
}
