import type { NameState, Owner } from "../../core/inspect.js";
import type { Page } from "../../sql/verbs.js";
import { type Row, textOf } from "./driver.js";

/** Rows of claims, ordered, as a page of names: a procedure could not put so many into one text. */
export function pageOf([heads = [], rows = []]: readonly (readonly Row[])[]): Page {
  const states = new Map<string, { -readonly [Key in keyof NameState]: NameState[Key] }>();
  for (const row of rows) {
    const name = textOf(row.name);
    const state = states.get(name) ?? {
      name,
      capacity: Number(row.capacity),
      lastToken: Number(row.last_token),
      holders: [],
      waiters: [],
    };
    states.set(name, state);
    const claim = {
      id: textOf(row.id),
      units: Number(row.units),
      leftMs: Number(row.left_ms),
      owner: JSON.parse(textOf(row.owner)) as Owner,
      ...(row.data === null ? {} : { data: JSON.parse(textOf(row.data)) as string }),
    };
    // A lock table of an older version does not know.
    const ms = row.for_ms == null ? undefined : Number(row.for_ms);
    if (Number(row.holds) === 1) {
      const held = ms === undefined ? {} : { heldMs: ms };
      state.holders = [...state.holders, { ...claim, token: Number(row.token), ...held }];
    } else {
      state.waiters = [...state.waiters, ms === undefined ? claim : { ...claim, waitingMs: ms }];
    }
  }
  const next = heads[0]?.next;
  return { states: [...states.values()], next: next === null ? null : textOf(next) };
}
