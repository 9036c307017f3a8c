// Beyond the common files of an engine: the operations and compares that all transactions are made of.

import type { Compare, RequestOp } from "./messages.js";

/** The operations and compares that this engine's transactions are made of. */

const ASCEND = 1;
const DESCEND = 2;
const BY_CREATION = 2;

export const get = (key: string): RequestOp => ({ request_range: { key } });
export const put = (key: string, value: string, lease: bigint): RequestOp => ({
  request_put: { key, value: Buffer.from(value), lease },
});
export const remove = (key: string): RequestOp => ({ request_delete_range: { key } });

/** In order of arrival, the first `limit` of them. */
export const oldest = (key: string, range_end: string, limit: number): RequestOp => ({
  request_range: {
    key,
    range_end,
    sort_order: ASCEND,
    sort_target: BY_CREATION,
    // To etcd 0 is no limit.
    limit: Number.isFinite(limit) ? limit : 0,
  },
});
/** The last `limit` of them, the youngest first. */
export const youngest = (key: string, range_end: string, limit: number): RequestOp => ({
  request_range: { key, range_end, limit, sort_order: DESCEND, sort_target: BY_CREATION },
});
/** Of those that came before `revision`, the last. */
export const lastBefore = (key: string, range_end: string, revision: number): RequestOp => ({
  request_range: {
    key,
    range_end,
    limit: 1,
    sort_order: DESCEND,
    sort_target: BY_CREATION,
    max_create_revision: revision - 1,
  },
});

export const EQUAL = 0;
const LESS = 2;
export const CREATE = 1;
const MOD = 2;
const LEASE = 4;

export const absent = (key: string, range_end = ""): Compare => ({
  ...{ result: EQUAL, target: CREATE, key, range_end, create_revision: 0 },
});
export const createdAt = (key: string, create_revision: number): Compare => ({
  ...{ result: EQUAL, target: CREATE, key, create_revision },
});
/** Version 0: absent. */
export const changedAt = (key: string, mod_revision: number): Compare => ({
  ...{ result: EQUAL, target: MOD, key, mod_revision },
});
/** Nothing in the range came or changed after `revision`; what left is not seen. */
export const quietSince = (key: string, range_end: string, revision: number): Compare => ({
  ...{ result: LESS, target: MOD, key, range_end, mod_revision: revision + 1 },
});
export const underLease = (key: string, lease: bigint): Compare => ({
  ...{ result: EQUAL, target: LEASE, key, lease },
});
