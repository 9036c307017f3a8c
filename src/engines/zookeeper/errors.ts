import { EngineRefusedError } from "../../core/errors.js";

/** What an error code says about asking again. */
type Meaning = {
  readonly code: number;
  /** Set where the answer will be the same however often it is asked: what to do about it. */
  readonly advice?: string;
  /** Also then it passes for who gives up or keeps what it has: others leave, and make room. */
  readonly passesForHolders?: true;
};

/** Nobody knows, or not now: ask again. */
const passes = (code: number): Meaning => ({ code });
/** An answer with a meaning of its own to whoever asked; where nobody expects it, it passes. */
const answers = (code: number): Meaning => ({ code });
const refuses = (code: number, advice: string): Meaning => ({ code, advice });

/** Every code of ZooKeeper 3.8 (`KeeperException.Code`) that a server sends. */
const TABLE = {
  systemError: passes(-1),
  /** Also what the parts of a failed transaction say that are not to blame. */
  runtimeInconsistency: passes(-2),
  dataInconsistency: passes(-3),
  connectionLoss: passes(-4),
  /** ZooKeeper's name for it is "marshalling error". */
  tooLarge: refuses(-5, "A server takes a megabyte at a time, unless told otherwise: keep less in it."),
  unimplemented: refuses(-6, "Use a ZooKeeper server of version 3.5.3 or later."),
  operationTimeout: passes(-7),
  badArguments: refuses(-8, "The server does not take this path: choose another base path or another name."),
  unknownSession: passes(-12),
  newConfigNoQuorum: passes(-13),
  reconfigInProgress: passes(-14),
  apiError: passes(-100),
  noNode: answers(-101),
  noAuth: refuses(-102, "Give the user the rights in docs/rights/zookeeper.txt, or the client another base path."),
  badVersion: answers(-103),
  noChildrenForEphemerals: refuses(-108, "The base path is somebody's ephemeral node; choose another."),
  nodeExists: answers(-110),
  notEmpty: answers(-111),
  sessionExpired: answers(-112),
  invalidCallback: passes(-113),
  invalidAcl: refuses(-114, "Check the acl option; the scheme auth needs a user and a password."),
  authFailed: refuses(
    -115,
    "Check the user and the password, and that the server has the scheme digest (zookeeper.DigestAuthenticationProvider.enabled).",
  ),
  sessionMoved: answers(-118),
  /** A server that lost the others and only lets read, until they are back. */
  notReadOnly: passes(-119),
  ephemeralOnLocalSession: refuses(
    -120,
    "Sessions are local to one server there: set localSessionsUpgradingEnabled=true, or localSessionsEnabled=false.",
  ),
  noWatcher: answers(-121),
  requestTimeout: passes(-122),
  reconfigDisabled: passes(-123),
  sessionClosedRequireAuth: refuses(
    -124,
    "The server wants clients to authenticate (enforce.auth.schemes, sessionRequireClientSASLAuth): give a user and a " +
      "password in the URL where it takes digest; SASL is not supported.",
  ),
  quotaExceeded: {
    ...refuses(
      -125,
      "A quota is set on this path (setquota, zookeeper.enforceQuota): raise it, or choose another base path.",
    ),
    passesForHolders: true,
  },
  throttledOp: passes(-127),
  /** Ours, not ZooKeeper's: the transaction ids are smaller than those that were seen before. */
  wentBack: refuses(
    1,
    "It was probably restored from a backup, or came up empty: old tokens would come again. Connect again with a tokenBase above them.",
  ),
} as const satisfies Record<string, Meaning>;

type CodeName = keyof typeof TABLE;

const entries = Object.entries(TABLE) as [CodeName, Meaning][];

export const CODE = Object.fromEntries(entries.map(([name, { code }]) => [name, code])) as Readonly<
  Record<CodeName, number>
>;

const MEANINGS: ReadonlyMap<number, Meaning> = new Map(entries.map(([, meaning]) => [meaning.code, meaning]));

const TEXTS: ReadonlyMap<number, string> = new Map(
  entries.map(([name, { code }]) => [code, name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)]),
);

const codeText = (code: number): string => TEXTS.get(code) ?? `error ${code}`;

/** Undefined for what passes. `holder`: asked by somebody who gives something up, or keeps what it has. */
export function adviceOn(code: number, holder = false): string | undefined {
  const meaning = MEANINGS.get(code);
  return holder && meaning?.passesForHolders === true ? undefined : meaning?.advice;
}

/** What a server answered, or why none did. */
export class ZooKeeperError extends Error {
  override readonly name = "ZooKeeperError";

  constructor(
    readonly code: number,
    readonly doing: string,
    options?: ErrorOptions,
  ) {
    super(`${codeText(code)} while ${doing}`, options);
  }
}

export function hasCode(error: unknown, ...codes: readonly number[]): boolean {
  return error instanceof ZooKeeperError && codes.includes(error.code);
}

/** Whether asking again will not help, and nobody has to see to it that it is done after all. */
export function isRefused(error: unknown, holder = false): boolean {
  return error instanceof ZooKeeperError && adviceOn(error.code, holder) !== undefined;
}

/**
 * Everything else means "not known, ask again". `holder`: see `adviceOn`. Claims share readings, and each of them is told by an
 * error of its own what these failed with.
 */
export function refused(error: unknown, holder = false): unknown {
  if (!(error instanceof ZooKeeperError)) return error;
  const advice = adviceOn(error.code, holder);
  if (advice !== undefined) return new EngineRefusedError("zookeeper", advice, error);
  return new ZooKeeperError(error.code, error.doing, { cause: error.cause });
}
