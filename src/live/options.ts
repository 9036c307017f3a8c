import { checkCount, checkFunction, checkKnown, checkNumber, shown } from "../core/checks.js";
import { InvalidOptionError } from "../core/errors.js";
import { checkName } from "../core/name.js";
import {
  EVERY_DEFAULT_MS,
  EVERY_MAX_MS,
  EVERY_MIN_MS,
  NAMES_DEFAULT,
  NAMES_MAX,
  VIEWERS_DEFAULT,
  VIEWERS_MAX,
} from "./limits.js";

/** What a viewer may do: look, or also take locks away. Anything else: nothing. */
export type Permission = "read" | "release" | null | undefined | false;

export interface LiveViewOptions {
  /**
   * Who may look. Without it only requests from this machine are answered. Asked at every request, and again for a stream that has
   * been open for ten minutes.
   */
  readonly authorize?: (request: Request) => Permission | Promise<Permission>;
  /** Without `authorize`: whether whoever looks from this machine may take locks away. Not unless said. */
  readonly release?: boolean;
  /** Further origins from which a lock may be taken away, such as `https://example.org`: for a proxy that changes the Host header. */
  readonly origins?: readonly string[];
  /** How often the store is read while somebody looks; 1 s unless said otherwise, less often when it is large. */
  readonly everyMs?: number;
  /** Only names that begin with this. */
  readonly prefix?: string;
  /** How many names to show; 10,000 unless said otherwise. */
  readonly names?: number;
  /** How many pages may be open at once; 50 unless said otherwise. */
  readonly viewers?: number;
}

export type Settings = {
  readonly authorize: LiveViewOptions["authorize"];
  readonly release: boolean;
  readonly origins: readonly string[];
  readonly everyMs: number;
  readonly prefix: string;
  readonly names: number;
  readonly viewers: number;
};

const OPTIONS = ["authorize", "release", "origins", "everyMs", "prefix", "names", "viewers"] as const;

export function checkOptions(options: LiveViewOptions): Settings {
  checkKnown(options, OPTIONS satisfies readonly (keyof LiveViewOptions)[]);
  const { authorize, release = false, origins = [], everyMs = EVERY_DEFAULT_MS, prefix = "" } = options;
  const { names = NAMES_DEFAULT, viewers = VIEWERS_DEFAULT } = options;
  if (authorize !== undefined) checkFunction("authorize", authorize);
  if (typeof release !== "boolean") throw new InvalidOptionError("release", shown(release), "true or false");
  if (release && authorize !== undefined) {
    const allowed = 'left out: with authorize, whoever it answers "release" for may do it';
    throw new InvalidOptionError("release", shown(release), allowed);
  }
  if (prefix !== "") checkName(prefix);
  if (!Array.isArray(origins) || !origins.every(isOrigin)) {
    throw new InvalidOptionError("origins", shown(origins), "a list of origins, such as https://example.org");
  }
  return {
    ...{ authorize, release, origins, prefix },
    everyMs: checkNumber("everyMs", everyMs, EVERY_MIN_MS, EVERY_MAX_MS, "milliseconds"),
    names: checkCount("names", names, 1, NAMES_MAX),
    viewers: checkCount("viewers", viewers, 1, VIEWERS_MAX),
  };
}

const isOrigin = (text: unknown): boolean =>
  typeof text === "string" && URL.canParse(text) && new URL(text).origin === text;
