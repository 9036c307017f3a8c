// Beyond the common files of an engine: the capacity of a busy name is kept in the data of its folder.

import type { CapacityAnswer } from "../../core/engine.js";
import { capacityChange, capacityText } from "../../queue/capacity.js";
import type { QueueEntry } from "../../queue/queue.js";
import { CODE, hasCode } from "./errors.js";
import type { NodeQueue, Nodes } from "./nodes.js";

/** The capacity of a busy name is changed in the data of its folder. */
export async function setCapacity(nodes: Nodes, name: string, from: number, to: number): Promise<CapacityAnswer> {
  for (;;) {
    const queue = await nodes.queueNow(name);
    const change = capacityChange(queue, from, to);
    if ("kind" in change) return change;
    const written = change.write ? await write(nodes, name, queue.limit, to) : queue;
    if (written === null) continue;
    const drops = (await nodes.queue(name)).waiters.filter((entry) => (entry.units ?? 1) > to);
    await Promise.all(drops.map((entry) => nodes.remove(nodes.nodePath(name, entry.key))));
    await touch(nodes, name, written.holders.at(-1));
    return { kind: "set" };
  }
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
