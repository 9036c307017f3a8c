// What becomes of a store when versions with another layout come: its data is taken along by the next, and who has no layout in common
// with it is refused.
import type { Locks } from "../../src/locks.js";
import type { Place } from "../../test/servers/places.js";
import { hasCells, openLibrary, optionsOf } from "./fleet.js";
import type { Package } from "./packages.js";

export type Refusal = { readonly who: string; readonly reads: string };

/** What somebody reads who connects with this package; null when it is let in. */
export async function refusalOf(one: Package, { url, options }: Place): Promise<string | null> {
  const { connect } = await openLibrary(one);
  const locks = await connect(url, options).catch((error: unknown) => error as Error);
  if (locks instanceof Error) return `${locks.name}: ${locks.message}`;
  await locks.close();
  return null;
}

async function refused(who: string, one: Package, place: Place): Promise<Refusal> {
  const reads = await refusalOf(one, place);
  if (reads === null) throw new Error(`${who} was let in`);
  return { who, reads };
}

/**
 * The three of them come one after the other, while a program of the present version holds, waits and counts all the time. Throws
 * when something is not as it should be; answers with what the refused ones read.
 */
export async function upgrade(
  place: Place,
  present: Package,
  next: Package,
  afterNext: Package,
): Promise<readonly Refusal[]> {
  // So long that a busy machine loses nothing.
  const options = { ...optionsOf(place), leaseMs: 60_000 };
  const open = async (one: Package): Promise<Locks> => (await openLibrary(one)).connect(place.url, options);
  const opened: Locks[] = [];
  const keep = async (one: Package): Promise<Locks> => {
    const locks = await open(one);
    opened.push(locks);
    return locks;
  };
  try {
    const ours = await keep(present);
    const counts = hasCells(place);
    const kept = await ours.mutex("kept").acquire();
    if (counts) await ours.counter("upgraded").add(1);
    const tooNew = await refused("two layouts later, on a store of the present one", afterNext, place);

    const newer = await keep(next);
    if ((await newer.mutex("kept").tryAcquire()) !== null) throw new Error("what was held was not taken along");
    await passes(ours, newer, kept);
    if (counts && (await newer.counter("upgraded").add(1)) !== 2) throw new Error("a cell was not taken along");
    const again = await keep(present);
    await passes(newer, again, await newer.mutex("kept").acquire());

    await again.close();
    await ours.close();
    const newest = await keep(afterNext);
    await passes(newer, newest, await newer.mutex("kept").acquire());
    if (counts && (await newest.counter("upgraded").add(1)) !== 3) throw new Error("a cell was not taken along twice");
    const tooOld = await refused("the present one, on a store of two layouts later", present, place);
    return [tooNew, tooOld];
  } finally {
    await Promise.all(opened.map((locks) => locks.close()));
  }
}

/** Who waits in one version is handed what the other holds, with a higher token. */
async function passes(from: Locks, to: Locks, hold: Awaited<ReturnType<ReturnType<Locks["mutex"]>["acquire"]>>) {
  const asked = new Promise<void>((resolve) => void to.on("queued", () => resolve()));
  const waiting = to.mutex("kept").acquire({ waitMs: 30_000 });
  await asked;
  await hold.release();
  const next = await waiting;
  if (next.token <= hold.token) throw new Error(`token ${next.token} came after ${hold.token}`);
  await next.release();
  await from.mutex("kept").using({ waitMs: 30_000 }, ({ token }) => {
    if (token <= next.token) throw new Error(`token ${token} came after ${next.token}`);
  });
}
