/** One statement for the server. With a `name` it is parsed once for each connection. */
export type PgQuery = { readonly text: string; readonly values?: readonly unknown[]; readonly name?: string };
export type PgResult = { readonly rows: readonly Record<string, unknown>[] };

export type PgNotification = { readonly channel: string; readonly payload?: string | undefined };

/** The calls this engine makes on a connection. */
export interface PgConnection {
  query(query: PgQuery): Promise<PgResult>;
  on(event: "notification", listener: (message: PgNotification) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "end", listener: () => void): unknown;
  removeListener(event: "notification", listener: (message: PgNotification) => void): unknown;
  removeListener(event: "error", listener: (error: Error) => void): unknown;
  removeListener(event: "end", listener: () => void): unknown;
  /** The server process behind the connection, as it was told when the connection was made. */
  readonly processID?: number | null;
  /** `I` outside of a transaction. */
  getTransactionStatus?(): string | null;
  /** To give up a connection that does not answer while it is made. */
  readonly connection?: { readonly stream?: { readonly destroyed?: boolean; destroy?(): unknown } };
}

/** A `Client` of `pg`, connected and used for nothing else. */
export interface PgClient extends PgConnection {
  connect(): Promise<unknown>;
  end(): Promise<void>;
}

export interface PgPoolClient extends PgConnection {
  release(destroy?: boolean): void;
}

/** A `Pool` of `pg`; it may be shared with the rest of the program. */
export interface PgPool {
  connect(): Promise<PgPoolClient>;
  /** Before a client is lent out, and before that when it is a new one. */
  on?(event: "connect" | "acquire", listener: (client: PgConnection) => void): unknown;
  readonly totalCount: number;
  readonly options: { readonly max?: number };
  /** The class of its clients, for the one connection that listens. */
  readonly Client?: new (
    options: object,
  ) => PgClient;
}

export function isPool(target: PgPool | PgClient): target is PgPool {
  return "totalCount" in target;
}

/** What the rest of the engine needs of `pg`, of a pool or of a single connection. */
export interface Driver {
  /** How many statements can be under way at once. */
  readonly connections: number;
  /** One statement, or several without values in one message, on any connection and within the time limit. */
  run(query: PgQuery): Promise<PgResult>;
  /** The connection that listens, or null when there can be none. `onEnd` is called once, when it is over. */
  listen(onNotification: OnNotification, onEnd: () => void): Promise<ListeningConnection | null>;
  /** Nothing is run after this: what belongs to a pool goes back. */
  close(): void;
}

export type OnNotification = (channel: string, payload: string) => void;

export interface ListeningConnection {
  run(query: PgQuery): Promise<PgResult>;
  /** Null when the library does not say. */
  readonly processId: number | null;
  close(): void;
}
