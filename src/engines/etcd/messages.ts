// Beyond the common files of an engine: the types of etcd's messages, for the driver and the verbs.

/**
 * The messages of etcd's API that this engine sends and receives, after etcd's `rpc.proto` and `kv.proto`. Field numbers
 * never change; fields that are not used here are left out.
 */
export type Header = { readonly cluster_id: bigint; readonly revision: number; readonly raft_term: bigint };

export type KeyValue = {
  readonly key: string;
  readonly create_revision: number;
  readonly mod_revision: number;
  readonly value: Buffer;
  readonly lease: bigint;
};

export type RangeRequest = {
  readonly key: string;
  readonly range_end?: string;
  readonly limit?: number;
  readonly sort_order?: number;
  readonly sort_target?: number;
  readonly keys_only?: boolean;
  readonly count_only?: boolean;
  readonly max_create_revision?: number;
};
export type RangeResponse = {
  readonly header: Header;
  readonly kvs: readonly KeyValue[];
  readonly more: boolean;
  readonly count: number;
};
type PutRequest = {
  readonly key: string;
  readonly value?: Uint8Array;
  readonly lease?: bigint;
  readonly ignore_value?: boolean;
  readonly ignore_lease?: boolean;
};
type DeleteRequest = { readonly key: string };
type DeleteResponse = { readonly deleted: number };
export type RequestOp = {
  readonly request_range?: RangeRequest;
  readonly request_put?: PutRequest;
  readonly request_delete_range?: DeleteRequest;
  readonly request_txn?: TxnRequest;
};
type ResponseOp = {
  readonly response_range?: RangeResponse;
  readonly response_delete_range?: DeleteResponse;
  readonly response_txn?: Omit<TxnResponse, "header">;
};
/** Of all keys from `key` to before `range_end`, or of the one. */
export type Compare = {
  readonly result: number;
  readonly target: number;
  readonly key: string;
  readonly range_end?: string;
  readonly create_revision?: number;
  readonly mod_revision?: number;
  readonly lease?: bigint;
};
export type TxnRequest = {
  readonly compare?: readonly Compare[];
  readonly success?: readonly RequestOp[];
  readonly failure?: readonly RequestOp[];
};
export type TxnResponse = {
  readonly header: Header;
  readonly succeeded: boolean;
  readonly responses: readonly ResponseOp[];
};
export type WatchRequest = {
  readonly create_request?: {
    readonly key: string;
    readonly range_end?: string;
    readonly start_revision?: number;
    readonly watch_id: number;
  };
  readonly cancel_request?: { readonly watch_id: number };
};
export const DELETED = 1;
export type WatchEvent = { readonly type: number; readonly kv?: KeyValue };
export type WatchResponse = {
  readonly header: Header;
  readonly watch_id: number;
  readonly created: boolean;
  readonly canceled: boolean;
  readonly compact_revision: number;
  readonly cancel_reason: string;
  readonly events: readonly WatchEvent[];
};
export type LeaseResponse = { readonly header: Header; readonly ID: bigint; readonly TTL: number };
