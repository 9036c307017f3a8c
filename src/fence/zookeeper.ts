import { InvalidOptionError } from "../core/errors.js";
import { admit, type FenceState, NOTHING_SEEN } from "./memory.js";
import { checkFenceOptions, checkToken, type FenceOptions, type FenceToken } from "./token.js";

/** One operation of a multi, as plain data: hand it to your client in its own words. */
export type ZooKeeperOperation =
  | { readonly kind: "create"; readonly path: string; readonly data: Buffer; readonly mode: "persistent" }
  | { readonly kind: "set"; readonly path: string; readonly data: Buffer; readonly version: number }
  | { readonly kind: "check"; readonly path: string; readonly version: number };

/** The fence's node as it was read; null when it is not there. */
export type SeenNode = { readonly data: Buffer; readonly version: number } | null;

/** The calls made of a client, and what they answer; `multi` is all or none, and rejects with the `code` of ZooKeeper's error. */
export interface ZooKeeperLike<Operation> {
  get(path: string): Promise<SeenNode>;
  multi(operations: readonly (Operation | ZooKeeperOperation)[]): Promise<unknown>;
}

/**
 * What to put first into a multi, given the fence's node as it was just read: the writes behind it happen only if the node is still
 * so. Throws `StaleTokenError` when the resource has seen a newer floor. When the multi fails because somebody else was
 * faster, read the node and ask again; `fencedMulti` does.
 */
export function zooKeeperGuard(
  path: string,
  seen: SeenNode,
  token: FenceToken,
  options: FenceOptions = {},
): ZooKeeperOperation {
  checkFenceOptions(options);
  const shown = checkToken(token, options);
  const before = seen === null ? NOTHING_SEEN : stateOf(path, seen.data);
  const after = admit(path, before, shown);
  const data = Buffer.from(JSON.stringify(after));
  if (seen === null) return { kind: "create", path, data, mode: "persistent" };
  const same = after.fence === before.fence && after.newest === before.newest;
  return same ? { kind: "check", path, version: seen.version } : { kind: "set", path, data, version: seen.version };
}

/** "bad version", "node exists" and "no node": the multi did nothing, and perhaps because of the fence's node. */
const OVERTAKEN: ReadonlySet<unknown> = new Set([-103, -110, -101]);
/** Each further attempt means that another writer came through. */
const ATTEMPTS = 100;

/**
 * Reads the fence's node at `path` (its parent must be there) and runs your operations in one multi behind the guard; again when other
 * rightful writers come in between. Two round trips when nobody does.
 */
export async function fencedMulti<Operation>(
  client: ZooKeeperLike<Operation>,
  path: string,
  token: FenceToken,
  operations: readonly Operation[],
  options: FenceOptions = {},
): Promise<void> {
  let seen = await client.get(path);
  for (let attempt = 1; ; attempt += 1) {
    try {
      await client.multi([zooKeeperGuard(path, seen, token, options), ...operations]);
      return;
    } catch (error) {
      if (!OVERTAKEN.has((error as { code?: unknown }).code) || attempt >= ATTEMPTS) throw error;
      const now = await client.get(path);
      // The fence is as it was: it is an operation of the caller's that cannot be done.
      if (now?.version === seen?.version) throw error;
      seen = now;
    }
  }
}

/** Shuts out everybody older than this token, at once. */
export async function raiseNode(
  client: ZooKeeperLike<ZooKeeperOperation>,
  path: string,
  token: number,
  options: FenceOptions = {},
): Promise<void> {
  await fencedMulti(client, path, token, [], { ...options, strict: false }).catch((error: unknown) => {
    // It is higher already.
    if ((error as { code?: unknown }).code !== "HOLDFAST_STALE_TOKEN") throw error;
  });
}

function stateOf(path: string, data: Buffer): FenceState {
  try {
    const { fence, newest, live } = JSON.parse(data.toString()) as FenceState;
    if (Number.isSafeInteger(fence) && Number.isSafeInteger(newest) && Array.isArray(live))
      return { fence, newest, live };
  } catch {
    // Told below.
  }
  throw new InvalidOptionError(
    "path",
    `the node ${path} holds something else than a fence`,
    "a node for the fence alone",
  );
}
