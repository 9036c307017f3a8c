import { StaleTokenError } from "../core/errors.js";
import { checkName } from "../core/name.js";
import {
  checkFenceOptions,
  checkRaise,
  checkToken,
  type Fence,
  type FenceOptions,
  type FenceToken,
  type Shown,
} from "./token.js";

/** What is kept for a resource; `newest` and `live` only where exact sets are shown. */
export type FenceState = { readonly fence: number; readonly newest: number; readonly live: readonly number[] };

export const NOTHING_SEEN: FenceState = { fence: 0, newest: 0, live: [] };

/** The rule, in plain code: what follows from an accepted token. Each store has it again in its own language. */
export function admit(resource: string, state: FenceState, { token, floor, live }: Shown): FenceState {
  if (token < state.fence) throw new StaleTokenError(resource, token, state.fence);
  const fence = Math.max(state.fence, floor);
  if (live === undefined) return { ...state, fence };
  if (token > state.newest) return { fence, newest: token, live };
  // Granted before the newest, and not among those who lived then.
  if (!state.live.includes(token)) throw new StaleTokenError(resource, token, state.fence);
  return { ...state, fence };
}

/** For one process, and for as long as it lives. It keeps a few numbers for every resource it was ever asked about. */
export function memoryFence(options: FenceOptions = {}): Fence {
  checkFenceOptions(options);
  const states = new Map<string, FenceState>();
  const stateOf = (resource: string): FenceState => states.get(checkName(resource)) ?? NOTHING_SEEN;
  return {
    async accept(resource: string, token: FenceToken) {
      states.set(resource, admit(resource, stateOf(resource), checkToken(token, options)));
    },
    async raise(resource: string, token: number) {
      const state = stateOf(resource);
      states.set(resource, { ...state, fence: Math.max(state.fence, checkRaise(token, options)) });
    },
  };
}
