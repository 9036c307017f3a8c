import { forceRelease } from "../../src/core/force-release.js";
import type { HolderState } from "../../src/core/inspect.js";
import type { Locks } from "../../src/locks.js";
import { until } from "../servers/process.js";
import { states, waiters } from "./rig.js";

let times = 0;

/** What programs do with locks, between two of them. Rejects with the first thing that the store refuses. */
export async function exercise(one: Locks, two: Locks): Promise<void> {
  // Others each time: what was refused half way may still be held.
  times += 1;
  const named = (what: string): string => `rights:${times}:${what}`;
  await waitAndHandOver(one, two, named("mutex"));
  await permits(one, two, named("semaphore"));
  const writer = await one.readWrite(named("file")).write.acquire();
  await writer.downgrade();
  await writer.release();
  await takeAway(one, two, named("taken"));
  const latch = two.latch(named("latch"), 2);
  for (let left = 2; left > 0; left -= 1) await latch.countDown();
  await latch.reset();
  await states(two);
  const { error } = await one.health();
  if (error !== undefined) throw error;
  await (one.client.engine as { maintenance?(): Promise<unknown> }).maintenance?.();
}

async function waitAndHandOver(one: Locks, two: Locks, name: string): Promise<void> {
  const hold = await one.mutex(name).acquire();
  const next = two.mutex(name).acquire();
  next.catch(() => {});
  await Promise.race([next, until("it waits", async () => (await waiters(one, name)) === 1)]);
  await one.client.engine.renew([{ name, id: hold.id }]);
  await hold.release();
  await (await next).release();
}

async function permits(one: Locks, two: Locks, name: string): Promise<void> {
  const holds = [await one.semaphore(name, 2).acquire(), await two.semaphore(name, 2).acquire()];
  await one.semaphore(name, 2).resize(3);
  for (const hold of holds) await hold.release();
}

async function takeAway(one: Locks, two: Locks, name: string): Promise<void> {
  const hold = await one.mutex(name).acquire();
  const [holder] = (await two.mutex(name).holders()) as [HolderState];
  await forceRelease(two.client, name, holder);
  await until("the holder is told", () => hold.state === "lost");
}
