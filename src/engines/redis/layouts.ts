// Beyond the fixed set of files: how a mutex looks in the layouts that other programs share.
import type { ScriptName } from "./scripts.js";

/** A layout with room for a mutex and nothing else, as data: one script for each verb, all with the same arguments and answers. */
export type Layout = {
  readonly name: "plain" | "redisson" | "redisson-fenced";
  readonly scripts: Readonly<Record<"claim" | "release" | "renew" | "inspect", ScriptName>>;
  /** Where the last token of a name is kept for other programs; null: a token is a time, and nothing is kept. */
  readonly tokenKey: ((name: string) => string) | null;
  /** What is published where when a name is free: on a channel of its own, or on one for all, as `shared` says. */
  readonly push: (name: string, shared: string) => { readonly channel: string; readonly message: string };
  /** Of a holder's value or field: what is ours has an id and a token. */
  readonly ours: RegExp;
};

const PLAIN: Layout = {
  name: "plain",
  scripts: { claim: "plainClaim", release: "plainRelease", renew: "plainRenew", inspect: "plainInspect" },
  tokenKey: null,
  push: (name, shared) => ({ channel: shared, message: name }),
  ours: /^(.*):(\d+)$/,
};

/** RLock. Its waiters try again at message 0. */
const REDISSON: Layout = {
  name: "redisson",
  scripts: { claim: "redissonClaim", release: "redissonRelease", renew: "redissonRenew", inspect: "redissonInspect" },
  tokenKey: null,
  push: (name) => ({ channel: `redisson_lock__channel:${tagged(name)}`, message: "0" }),
  ours: /^holdfast:(.*):(\d+)$/,
};

export const LAYOUTS = {
  plain: PLAIN,
  redisson: REDISSON,
  /** RFencedLock. Its tokens are counted, by 1, from wherever the last one was. */
  "redisson-fenced": {
    ...REDISSON,
    name: "redisson-fenced",
    tokenKey: (name) => `redisson_lock_token:${tagged(name)}`,
  },
} satisfies Record<Layout["name"], Layout>;

/** As Redisson does it: the name is the hash tag, unless it has one. */
function tagged(name: string): string {
  return name.includes("{") ? name : `{${name}}`;
}
