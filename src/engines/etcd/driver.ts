import type {
  Header,
  LeaseResponse,
  RangeRequest,
  RangeResponse,
  TxnRequest,
  TxnResponse,
  WatchRequest,
  WatchResponse,
} from "./messages.js";

/** Each call with what it is given and what it answers. */
export type Calls = {
  range: [RangeRequest, RangeResponse];
  txn: [TxnRequest, TxnResponse];
  leaseGrant: [{ readonly TTL: number }, LeaseResponse];
  leaseRevoke: [{ readonly ID: bigint }, object];
  leaseTimeToLive: [{ readonly ID: bigint }, LeaseResponse];
  status: [object, { readonly header: Header; readonly version: string }];
  memberList: [object, { readonly header: Header; readonly members: readonly { readonly isLearner: boolean }[] }];
};

/**
 * What this engine asks of a client. Every call has a time limit of its own, is sent once, and rejects with
 * an `EtcdError` when the server or the wire said no.
 */
export interface EtcdDriver {
  call<Name extends keyof Calls>(name: Name, request: Calls[Name][0]): Promise<Calls[Name][1]>;
  keepAlive(lease: bigint): Promise<LeaseResponse>;
  /** One stream for any number of watches. `ended` is called once, and says why, unless it was closed from here. */
  watch(heard: (response: WatchResponse) => void, ended: (cause?: Error) => void): Promise<WatchStream>;
  close(): void;
}

export interface WatchStream {
  send(request: WatchRequest): void;
  close(): void;
}
