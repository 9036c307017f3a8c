/** What a hold is worth to another process: plain data for `locks.adopt`. */
export type HandOver = {
  readonly name: string;
  readonly id: string;
  readonly units: number;
  readonly capacity: number;
  readonly leaseMs: number;
  readonly renew: boolean;
  /** What is left of it. */
  readonly maxHoldMs?: number;
};
