import type { ClaimRef, ReleaseAnswer, ReleaseRequest } from "../../core/engine.js";
import type { LocalClaims } from "../../queue/local-claims.js";
import type { NodeClaim } from "./node-claim.js";
import type { Nodes } from "./nodes.js";

/** Gives back or withdraws a claim, of this client or of another. */
export async function release(
  nodes: Nodes,
  claims: LocalClaims<NodeClaim>,
  { name, id, tombstone }: ReleaseRequest,
): Promise<ReleaseAnswer> {
  const local = claims.get({ name, id });
  if (local !== undefined) return releaseOwn(nodes, local, tombstone === "never");
  // First the tombstone, then the queue: a claim that comes in after the queue was read finds the tombstone.
  const revoked = tombstone === "never" ? null : !(await nodes.bury(name, id));
  const queue = await nodes.queueNow(name);
  const own = queue.byId(id);
  if (own !== undefined && (await nodes.remove(nodes.nodePath(name, own.key)))) return "released";
  return (revoked ?? queue.hasTombstone(id)) ? "revoked" : "gone";
}

function releaseOwn(nodes: Nodes, local: NodeClaim, withoutTombstone: boolean): Promise<ReleaseAnswer> {
  const { name, id } = local;
  const left = local.inTurn(async (): Promise<ReleaseAnswer> => {
    const hasTombstone = async (): Promise<boolean> => (await nodes.queue(name)).hasTombstone(id);
    if (local.over) return (await hasTombstone()) ? "revoked" : "gone";
    local.leaving = true;
    local.predecessor.stop();
    const burying = withoutTombstone ? null : nodes.bury(name, id);
    const [removed, first] = await Promise.all([local.node.remove(), burying]);
    local.finish();
    if (removed) return "released";
    return (first === null ? await hasTombstone() : !first) ? "revoked" : "gone";
  });
  // Whoever asked may give up before there is a connection again, and the session may well outlast that.
  left.catch(() => local.expire());
  return left;
}

/** Fewer units for a hold. */
export async function resize(
  nodes: Nodes,
  claims: LocalClaims<NodeClaim>,
  { name, id }: ClaimRef,
  units: number,
): Promise<"resized" | "refused" | "gone"> {
  const local = claims.get({ name, id });
  // A node belongs to its session: no other client can replace it.
  if (local === undefined) return (await nodes.queueNow(name)).byId(id) === undefined ? "gone" : "refused";
  return local.inTurn(async () => {
    const gone = (): "gone" => {
      local.lose();
      return "gone";
    };
    if (local.over || local.node.path === null) return "gone";
    if (!local.granted || units >= local.units) {
      // Nothing to write: whether it is still there has to be asked.
      const own = (await nodes.queueNow(name)).byId(id);
      if (own === undefined) return gone();
      return local.granted && own.units === units ? "resized" : "refused";
    }
    const outcome = await local.node.shrink(units);
    if (outcome === "gone") return gone();
    // The end of the old node, which would have asked to watch the new one, was told before.
    if (outcome === "found") local.selfChanged();
    local.units = units;
    return "resized";
  });
}
