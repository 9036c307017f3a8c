import type { Field, Kind, Schema } from "./protobuf.js";

/** The messages of `messages.ts` as protocol buffers. */
function field(at: number, kind: Kind): Field {
  return { at, kind };
}

function list(at: number, kind: Kind): Field {
  return { at, kind, list: true };
}

const HEADER: Schema = { cluster_id: field(1, "bigint"), revision: field(3, "number"), raft_term: field(4, "bigint") };
const header = field(1, () => HEADER);

const KEY_VALUE: Schema = {
  key: field(1, "text"),
  create_revision: field(2, "number"),
  mod_revision: field(3, "number"),
  value: field(5, "bytes"),
  lease: field(6, "bigint"),
};
const RANGE_REQUEST: Schema = {
  key: field(1, "text"),
  range_end: field(2, "text"),
  limit: field(3, "number"),
  sort_order: field(5, "number"),
  sort_target: field(6, "number"),
  keys_only: field(8, "boolean"),
  count_only: field(9, "boolean"),
  max_create_revision: field(13, "number"),
};
const RANGE_RESPONSE: Schema = {
  header,
  kvs: list(2, () => KEY_VALUE),
  more: field(3, "boolean"),
  count: field(4, "number"),
};
const PUT_REQUEST: Schema = {
  key: field(1, "text"),
  value: field(2, "bytes"),
  lease: field(3, "bigint"),
  ignore_value: field(5, "boolean"),
  ignore_lease: field(6, "boolean"),
};
const DELETE_REQUEST: Schema = { key: field(1, "text") };
const DELETE_RESPONSE: Schema = { deleted: field(2, "number") };
const REQUEST_OP: Schema = {
  request_range: field(1, () => RANGE_REQUEST),
  request_put: field(2, () => PUT_REQUEST),
  request_delete_range: field(3, () => DELETE_REQUEST),
  request_txn: field(4, () => TXN_REQUEST),
};
const RESPONSE_OP: Schema = {
  response_range: field(1, () => RANGE_RESPONSE),
  response_delete_range: field(3, () => DELETE_RESPONSE),
  response_txn: field(4, () => TXN_RESPONSE),
};
const COMPARE: Schema = {
  result: field(1, "number"),
  target: field(2, "number"),
  key: field(3, "text"),
  create_revision: field(5, "number"),
  mod_revision: field(6, "number"),
  lease: field(8, "bigint"),
  range_end: field(64, "text"),
};
const TXN_REQUEST: Schema = {
  compare: list(1, () => COMPARE),
  success: list(2, () => REQUEST_OP),
  failure: list(3, () => REQUEST_OP),
};
const TXN_RESPONSE: Schema = { header, succeeded: field(2, "boolean"), responses: list(3, () => RESPONSE_OP) };

const WATCH_CREATE: Schema = {
  key: field(1, "text"),
  range_end: field(2, "text"),
  start_revision: field(3, "number"),
  watch_id: field(7, "number"),
};
const WATCH_CANCEL: Schema = { watch_id: field(1, "number") };
const WATCH_REQUEST: Schema = {
  create_request: field(1, () => WATCH_CREATE),
  cancel_request: field(2, () => WATCH_CANCEL),
};
const EVENT: Schema = { type: field(1, "number"), kv: field(2, () => KEY_VALUE) };
const WATCH_RESPONSE: Schema = {
  header,
  watch_id: field(2, "number"),
  created: field(3, "boolean"),
  canceled: field(4, "boolean"),
  compact_revision: field(5, "number"),
  cancel_reason: field(6, "text"),
  events: list(11, () => EVENT),
};
const MEMBER: Schema = { isLearner: field(5, "boolean") };
const LEASE_RESPONSE: Schema = { header, ID: field(2, "bigint"), TTL: field(3, "number") };

/** Every call this engine makes: its path, and what goes over the wire. */
export const METHODS = {
  range: { path: "/etcdserverpb.KV/Range", request: RANGE_REQUEST, response: RANGE_RESPONSE },
  txn: { path: "/etcdserverpb.KV/Txn", request: TXN_REQUEST, response: TXN_RESPONSE },
  leaseGrant: {
    path: "/etcdserverpb.Lease/LeaseGrant",
    request: { TTL: field(1, "number") },
    response: LEASE_RESPONSE,
  },
  leaseRevoke: { path: "/etcdserverpb.Lease/LeaseRevoke", request: { ID: field(1, "bigint") }, response: {} },
  leaseTimeToLive: {
    path: "/etcdserverpb.Lease/LeaseTimeToLive",
    request: { ID: field(1, "bigint") },
    response: LEASE_RESPONSE,
  },
  status: {
    path: "/etcdserverpb.Maintenance/Status",
    request: {},
    response: { header, version: field(2, "text") },
  },
  memberList: {
    path: "/etcdserverpb.Cluster/MemberList",
    request: {},
    response: { header, members: list(2, () => MEMBER) },
  },
  authenticate: {
    path: "/etcdserverpb.Auth/Authenticate",
    request: { name: field(1, "text"), password: field(2, "text") },
    response: { token: field(2, "text") },
  },
} as const satisfies Record<string, Method>;

export const STREAMS = {
  leaseKeepAlive: {
    path: "/etcdserverpb.Lease/LeaseKeepAlive",
    request: { ID: field(1, "bigint") },
    response: LEASE_RESPONSE,
  },
  watch: { path: "/etcdserverpb.Watch/Watch", request: WATCH_REQUEST, response: WATCH_RESPONSE },
} as const satisfies Record<string, Method>;

export type Method = { readonly path: string; readonly request: Schema; readonly response: Schema };
