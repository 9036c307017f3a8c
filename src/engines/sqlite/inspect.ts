import type { ClaimState, InspectFilter, NameState, Owner } from "../../core/inspect.js";
import type { LockFile } from "./lock-file.js";
import type { LockTables } from "./lock-tables.js";
import { isIdle, type NameRow } from "./rows.js";

/** Names that are read in one transaction. */
const BATCH = 64;

export async function* inspect(file: LockFile, { name, prefix = "" }: InspectFilter): AsyncGenerator<NameState> {
  if (name !== undefined && !name.startsWith(prefix)) return;
  const states = (names: readonly string[]): Promise<NameState[]> =>
    file.write("inspecting", (tables) => names.flatMap((text) => stateOf(tables, text) ?? []));
  if (name !== undefined) {
    yield* await states([name]);
    return;
  }
  const { sql } = file.tables;
  // Names are ordered by their bytes, so those with a prefix stand together, right behind the prefix itself.
  const next = (after: string): Promise<string[]> =>
    file.transactions.read("inspecting", () => sql.namesAfter.all(after, BATCH).map((row) => row.name));
  if (prefix !== "") yield* await states([prefix]);
  for (let names = await next(prefix); names.length > 0; names = await next(names.at(-1) ?? "")) {
    const matching = names.filter((text) => text.startsWith(prefix));
    if (matching.length > 0) yield* await states(matching);
    if (matching.length < names.length) return;
  }
}

/** Undefined for an idle name. */
function stateOf(tables: LockTables, text: string): NameState | undefined {
  const { name } = tables.loadCurrent({ name: text, id: "" });
  const { now } = tables;
  const claims = claimsOf(tables, name).map(({ id, units, token, holds, endsAt, owner, data, since }) => {
    const state: ClaimState = { id, units, leftMs: endsAt - now, owner, ...(data === null ? {} : { data }) };
    return { token, holds, state, ms: since == null ? undefined : now - since };
  });
  if (claims.length === 0) return undefined;
  const holders = claims
    .filter(({ holds }) => holds === 1)
    .map(({ token, state, ms }) => ({ ...state, token, ...(ms === undefined ? {} : { heldMs: ms }) }));
  const waiters = claims
    .filter(({ holds }) => holds === 0)
    .map(({ state, ms }) => ({ ...state, ...(ms === undefined ? {} : { waitingMs: ms }) }));
  return { name: text, capacity: name.capacity, lastToken: name.lastToken, holders, waiters };
}

function claimsOf({ sql, now }: LockTables, name: NameRow) {
  if (isIdle(name)) return [];
  if (name.sole !== null) return [name.sole];
  return sql.claimsOf.all(name.name, now).map((row) => ({ ...row, owner: JSON.parse(row.owner) as Owner }));
}
