/** What `bench/scale.mjs` measured, one server and a Cluster beside each other. */
export type ScaleResults = { readonly single: ScaleFigures; readonly cluster: ScaleFigures };

export type ScaleFigures = {
  readonly about: {
    readonly date: string;
    readonly command: string;
    readonly commit: string;
    readonly machine: string;
    readonly node: string;
    readonly redis: string;
    readonly load: number;
    readonly minutes: number;
  };
  readonly plain: readonly { readonly size: number; readonly bytes: number }[];
  readonly held: readonly HeldRow[];
  readonly idle: readonly { readonly size: number; readonly bytes: number; readonly missing: number }[];
  readonly claims: readonly ClaimsRow[];
  readonly fleet: Fleet;
};

export type HeldRow = PerRenewal & {
  readonly size: number;
  /** Names beside them that nobody holds. */
  readonly idle: number;
  /** Two processes spun meanwhile. */
  readonly busy: boolean;
  /** How many cores all other processes used meanwhile. */
  readonly otherCores: number;
  readonly bytes: number;
  readonly heapBytes: number;
  /** Not on the server as their holder has them. */
  readonly wrong: number;
};

type PerRenewal = {
  readonly perSecond: number;
  readonly clientUs: number;
  readonly serverUs: number;
  readonly perCall: number;
  readonly slowestMs: number;
  readonly lost: number;
};

type ClaimsRow = {
  readonly servers: string;
  readonly pairUs: number;
  readonly pairRatio: number;
  readonly flightUs: number;
  readonly flightRatio: number;
};

export type Fleet = {
  readonly clients: number;
  readonly bytes: number;
  readonly connections: number;
  readonly idleServerUs: number;
  readonly rows: readonly (PerRenewal & { readonly each: number })[];
};
