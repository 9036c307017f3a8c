/** Who asked: told to others in errors, events and `inspect`. Data, never an identity: that is the claim's id. */
export type Owner = {
  readonly client: string;
  readonly host: string;
  readonly pid: number;
  readonly label?: string;
};

export type InspectFilter = { readonly name?: string; readonly prefix?: string };

/** What a store knows about one busy name: holders in order of their tokens, waiters in order of arrival. */
export type NameState = {
  readonly name: string;
  readonly capacity: number;
  readonly lastToken: number;
  readonly holders: readonly HolderState[];
  readonly waiters: readonly WaiterState[];
};

export type ClaimState = {
  readonly id: string;
  readonly units: number;
  readonly leftMs: number;
  readonly owner: Owner;
  readonly data?: string;
};

/** `waitingMs`: since it asked. `heldMs`: since it was granted. By the store's clock; left out where it does not know. */
export type WaiterState = ClaimState & { readonly waitingMs?: number };
export type HolderState = ClaimState & { readonly token: number; readonly heldMs?: number };

/** `host:pid`, with its label in front where it has one. */
export function ownerText(owner: Owner): string {
  const place = `${owner.host}:${owner.pid}`;
  return owner.label === undefined ? place : `${owner.label} (${place})`;
}

/** Another library's claim does not say who made it. */
export function unknownOwner(client: string): Owner {
  return { client, host: "unknown", pid: 0 };
}

/** An owner as text. In a store that programs share, anybody may have written it. */
export function parseOwner(text: string): Owner {
  try {
    const value: unknown = JSON.parse(text);
    if (isOwner(value)) return value;
  } catch {
    // Not even JSON.
  }
  return unknownOwner(text);
}

export function isOwner(value: unknown): value is Owner {
  const { client, host, pid, label = "" } = (value ?? {}) as Record<string, unknown>;
  return [client, host, label].every((text) => typeof text === "string") && typeof pid === "number";
}

/** How many members of a quorum have a hold that stands on as few as may grant it, and for how long it has. `over`: no longer. */
export type Standing = {
  readonly votes: number;
  readonly members: number;
  readonly forMs: number;
  readonly over: boolean;
};
