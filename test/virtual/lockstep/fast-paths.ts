import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Edit, writeBrokenCopy } from "../../../scripts/broken-copy.js";
import { SeededChance } from "../../../src/testing/seeded-chance.js";
import { comparePaths, type PathsWorld } from "./paths.js";

/** What an engine saves where it can. */
export type FastPath = {
  readonly name: string;
  /** Takes the plain path in its place. */
  readonly off: readonly Edit[];
  /** A mistake in it, which the comparison with the plain path has to show. */
  readonly broken: readonly Edit[];
  /** Leases are kept alive at other times: see `PathsOptions`. */
  readonly roughly?: true;
  /** The mistake shows within seconds. */
  readonly quick?: true;
  /** The test that shows the mistake, where no random commands do. */
  readonly shownBy?: string;
};

/**
 * `npm test` compares the engine with the one without all of its fast paths, and shows the mistakes that show quickly. With
 * HOLDFAST_SEEDS, each path is compared by itself, and each mistake is shown: minutes.
 */
const EACH = process.env["HOLDFAST_SEEDS"] !== undefined;

export function comparedOf(paths: readonly FastPath[]): (readonly [string, FastPath])[] {
  return [...(EACH ? paths : []), allOf(paths)].map((path) => [path.name, path] as const);
}

export function mistakenOf(paths: readonly FastPath[]): (readonly [string, FastPath])[] {
  return paths
    .filter(({ quick, shownBy }) => (EACH && shownBy === undefined) || quick)
    .map((path) => [path.name, path] as const);
}

const CLAIMS = "queue/local-claims.js";

export const WATCHED_LATER: FastPath = {
  name: "a claim is watched once it has been there for a while",
  off: [[CLAIMS, "if (claim.counted)", "if (true)"]],
  broken: [[CLAIMS, "const WATCH_AFTER_MS = 200;", "const WATCH_AFTER_MS = 600_000;"]],
};

const TURNS = "queue/turns.js";

export const WAITS_FOR_OWN: FastPath = {
  name: "a claim of the same client is waited for without a watch",
  off: [[TURNS, "const first = all ||", "const first = true ||"]],
  broken: [[TURNS, "claims.left = (claim) => this.#left(claim);", ""]],
};

function allOf(paths: readonly FastPath[]): FastPath {
  const [{ broken } = WATCHED_LATER] = paths;
  return { name: "all of them at once", off: paths.flatMap(({ off }) => off), broken, roughly: true };
}

/** Copies of the library, edited. */
export class Copies {
  readonly #folder = mkdtempSync(join(tmpdir(), "holdfast-paths-"));
  #count = 0;

  write(edits: readonly Edit[]): (file: string) => Promise<Record<string, unknown>> {
    // What is in such a folder is loaded as it is.
    const copy = join(this.#folder, "node_modules", `copy-${this.#count++}`);
    writeBrokenCopy(copy, edits);
    return (file) => import(pathToFileURL(join(copy, file)).href);
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const COMMANDS = 40;
const BROKEN_SEEDS_MAX = 40;
/** Long enough for a server; should a busy one take longer, it is another seed's turn to show the mistake. */
const NEVER_TOLD_MS = 5_000;

type MakeWorld = (chance: SeededChance) => PathsWorld;

/** The engine as it is and the one without the path, by these seeds. */
export async function comparePath(
  { roughly }: FastPath,
  fast: MakeWorld,
  plain: MakeWorld,
  seeds: { readonly first: number; readonly count: number },
): Promise<void> {
  for (let seed = seeds.first; seed < seeds.first + seeds.count; seed += 1) {
    const worlds = [fast(new SeededChance(seed)), plain(new SeededChance(seed))] as const;
    try {
      await comparePaths(worlds, new SeededChance(seed), { commands: COMMANDS, roughly: roughly === true });
    } catch (error) {
      throw new Error(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
  }
}

/** What shows that the path is broken; undefined when nothing does. */
export async function mistakeShown(
  { roughly }: FastPath,
  broken: MakeWorld,
  plain: MakeWorld,
): Promise<string | undefined> {
  for (let seed = 1; seed <= BROKEN_SEEDS_MAX; seed += 1) {
    const worlds = [broken(new SeededChance(seed)), plain(new SeededChance(seed))] as const;
    const options = { commands: COMMANDS, roughly: roughly === true, toldWithinMs: NEVER_TOLD_MS };
    const shown = await comparePaths(worlds, new SeededChance(seed), options).then(
      () => undefined,
      (error: unknown) => `seed ${seed}: ${error instanceof Error ? error.message : String(error)}`,
    );
    if (shown !== undefined) return shown;
  }
  return undefined;
}
