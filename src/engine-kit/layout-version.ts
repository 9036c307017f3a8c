import { EngineRefusedError } from "../core/errors.js";

/**
 * The versions of a store's layout that a program speaks. It writes the highest, in such a way that who speaks its lowest
 * understands it, and it understands and takes along what was written in its lowest. So two programs may share a store when they
 * have a version in common. A store keeps what the newest program that has used it speaks. `docs/internals/layouts.md` describes the layouts.
 */
export type LayoutVersions = { readonly lowest: number; readonly highest: number };

/** Version 1 was that of 0.1.0, which was never published: no program takes it along. */
export const FIRST_LAYOUT_VERSION = 2;

/** What this program speaks. The numbers of SQL and SQLite are those of their migrations, the first of which is `FIRST_LAYOUT_VERSION`. */
export const LAYOUT_VERSIONS = {
  sqlite: { lowest: 2, highest: 2 },
  redis: { lowest: 2, highest: 2 },
  postgres: { lowest: 2, highest: 2 },
  mysql: { lowest: 2, highest: 2 },
  etcd: { lowest: 2, highest: 2 },
  zookeeper: { lowest: 2, highest: 2 },
} satisfies Readonly<Record<string, LayoutVersions>>;

export type VersionedStore = keyof typeof LAYOUT_VERSIONS;

/** Whose layout it is: `what` for the message, and what a program is given that wants to have `another`. */
export type VersionedPlace = { readonly kind: VersionedStore; readonly what: string; readonly another: string };

/** Whether the store's data has to be taken along to our version first. Throws where we have no version in common with it. */
export function isBehind(place: VersionedPlace, stored: LayoutVersions): boolean {
  const ours = LAYOUT_VERSIONS[place.kind];
  if (stored.lowest > ours.highest) {
    throw refusal(place, stored, "too old", `Update Holdfast here, or give this program ${place.another} of its own.`);
  }
  if (stored.highest < ours.lowest) throw refusal(place, stored, "too new", adviceForTooNew(stored));
  return stored.highest < ours.highest;
}

function adviceForTooNew({ highest }: LayoutVersions): string {
  return highest < FIRST_LAYOUT_VERSION
    ? "It was made by 0.1.0, which was never published: stop all programs that use it, remove it, and start them again."
    : `Update one version of the layout at a time: first let all programs run a Holdfast that speaks ${highest} and ${highest + 1}, which takes the data along.`;
}

function refusal(place: VersionedPlace, stored: LayoutVersions, wrong: string, advice: string): EngineRefusedError {
  const [theirs, ours] = [stored, LAYOUT_VERSIONS[place.kind]].map(spoken);
  const cause = new Error(
    `${place.what} is for programs that speak layout version ${theirs}, and this Holdfast, which is ${wrong}, speaks ${ours}`,
  );
  return new EngineRefusedError(place.kind, advice, cause);
}

function spoken({ lowest, highest }: LayoutVersions): string {
  return lowest === highest ? `${highest}` : `${lowest} or ${highest}`;
}

/** What a store keeps that has no place for numbers: `2-3`. */
function versionsText(kind: VersionedStore): string {
  const { lowest, highest } = LAYOUT_VERSIONS[kind];
  return `${lowest}-${highest}`;
}

function parseVersions(text: string): LayoutVersions | null {
  const [, lowest, highest] = /^(\d{1,9})-(\d{1,9})$/.exec(text) ?? [];
  if (lowest === undefined || highest === undefined) return null;
  return { lowest: Number(lowest), highest: Number(highest) };
}

function notOurs(place: VersionedPlace, text: string): EngineRefusedError {
  const cause = new Error(`what should be the layout version of ${place.what} is ${JSON.stringify(text.slice(0, 40))}`);
  return new EngineRefusedError(
    place.kind,
    `Another program uses it; give this one ${place.another} of its own.`,
    cause,
  );
}

/** So many programs of different versions do not come at the same moment. */
const TRIES = 10;

/**
 * For a store that keeps the version as one text. `writeOver` writes ours where there is none, or what was seen before (`null`: nothing
 * yet), in one step, and answers with what is there then; null where that is not known, and has to be asked again. The result is null when
 * they agree, and otherwise why not, which no repetition will change.
 */
export async function agreeOnVersion(
  place: VersionedPlace,
  writeOver: (seen: string | null, ours: string) => Promise<string | null>,
): Promise<EngineRefusedError | null> {
  const ours = versionsText(place.kind);
  let seen: string | null = null;
  for (let tries = 1; tries <= TRIES; tries += 1) {
    seen = await writeOver(seen, ours);
    if (seen === null) continue;
    const stored = parseVersions(seen);
    if (stored === null) return notOurs(place, seen);
    try {
      if (!isBehind(place, stored)) return null;
    } catch (refused) {
      return refused as EngineRefusedError;
    }
  }
  throw new Error(`others changed the layout version of ${place.what} again and again`);
}
