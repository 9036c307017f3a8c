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
 * What this engine asks of a client, in one place. Every call has a time limit of its own, is sent once, and rejects with
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

/** gRPC's status codes, those that are looked at. */
export const STATUS = {
  CANCELLED: 1,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;

/** What a call failed with: never the library's own error, whose metadata may carry a token. */
export class EtcdError extends Error {
  override readonly name = "EtcdError";

  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** The server never saw this lease, or it has ended: the call did nothing. */
export function isLeaseGone(cause: unknown): boolean {
  return cause instanceof EtcdError && cause.message.includes("requested lease not found");
}

/** The quota is used up: nothing may be written, everything may be removed. */
export function isOutOfSpace(cause: unknown): cause is EtcdError {
  return cause instanceof EtcdError && cause.message.includes("database space exceeded");
}
