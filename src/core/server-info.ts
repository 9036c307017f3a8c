/** What a store says about itself; what it will not say is left out. */
export type ServerInfo = {
  /** The same for everything that fails together: a server's run id, a cluster's identifier, a file. Empty: it will not say. */
  readonly server: string;
  /** How long it has been running, at least. */
  readonly upMs?: number;
  /** It copies another server and must not vote beside it. */
  readonly replica?: boolean;
  /** How many servers copy it: one of them may take its place without all that it knew. */
  readonly replicas?: number;
  /** It is a node of a cluster, which may move or replace it. */
  readonly cluster?: boolean;
};
