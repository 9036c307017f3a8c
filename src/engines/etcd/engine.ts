import type { Cells } from "../../core/cells.js";
import type {
  CapacityAnswer,
  ClaimRef,
  ClaimRequest,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  RenewRequest,
} from "../../core/engine.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { setCapacity } from "../../queue/capacity.js";
import { QueueEngine } from "../../queue/engine.js";
import { inspectNames } from "../../queue/inspect.js";
import { release } from "../../queue/release.js";
import { Turns } from "../../queue/turns.js";
import { changeCapacity, readNow } from "./capacity.js";
import { EtcdCells } from "./cells.js";
import { Claiming } from "./claim.js";
import { type EtcdClaim, EtcdClaims } from "./claims.js";
import type { EtcdDriver } from "./driver.js";
import { translated } from "./errors.js";
import { Watches } from "./events.js";
import { namesOf, stateOf } from "./inspect.js";
import { Keys } from "./keys.js";
import { Leases } from "./leases.js";
import type { Compare } from "./messages.js";
import type { Settings } from "./options.js";
import { EtcdExit } from "./release.js";
import { Renewals } from "./renew.js";
import { createdAt } from "./requests.js";
import { Slots } from "./slots.js";
import { type Snapshot, Snapshots } from "./snapshots.js";
import { Store } from "./store.js";
import { EtcdWatcher } from "./watcher.js";

/** The queue is the keys of a name in order of their creation. */
export class EtcdEngine extends QueueEngine<EtcdClaim, Snapshot> {
  readonly kind = "etcd";
  readonly guarantees: Guarantees;
  readonly leaseMinMs: number;
  readonly cells: Cells;
  readonly #client: EtcdDriver;
  readonly #own: boolean;
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #watches: Watches;
  readonly #claims: EtcdClaims;
  readonly #claiming: Claiming;
  readonly #renewals: Renewals;
  readonly #exit: EtcdExit;

  /** `own`: the client was made for this engine and ends with it. */
  constructor(client: EtcdDriver, settings: Settings, guarantees: Guarantees, leaseMinMs: number, own: boolean) {
    const { clock, chance, prefix } = settings;
    const listeners = new Listeners();
    const tell = (event: EngineEvent): void => listeners.tell(event);
    const store = new Store(client, clock, new Keys(prefix), () => {
      tell({ kind: "warning", message: "etcd's revision went back: it was probably restored from a backup" });
      // What was held in the store that answered before is not held in this one.
      claims.loseAll();
    });
    const leases = new Leases(client, clock);
    const claims = new EtcdClaims(store, leases, new Slots(chance.id()), tell);
    const snapshots = new Snapshots(store);
    const watches = new Watches(client, clock, chance, tell);
    const watcher = new EtcdWatcher(claims, snapshots, watches, {
      lookUp: (claim) => void turns.lookUp(claim),
      granted: (claim) => turns.push(claim, aloneOf(claim)),
      wake: (claim) => turns.wake(claim),
    });
    const turns = new Turns<EtcdClaim, Snapshot>(watcher, claims, tell);
    super(clock, turns, listeners);
    this.guarantees = guarantees;
    this.leaseMinMs = leaseMinMs;
    this.cells = new EtcdCells(store, leases, watches);
    this.#client = client;
    this.#own = own;
    this.#store = store;
    this.#leases = leases;
    this.#watches = watches;
    this.#claims = claims;
    this.#renewals = new Renewals(claims, snapshots, watcher);
    this.#claiming = new Claiming(claims, snapshots, watcher, this.#renewals);
    this.#exit = new EtcdExit(claims);
  }

  /** The compare of a transaction that is true while the claim is there and ours. */
  heldCompare(ref: ClaimRef): Compare {
    const local = this.#claims.get(ref);
    const held = local?.granted === true && !local.over;
    return held ? createdAt(local.key, local.token) : createdAt(this.#store.keys.probe, 1);
  }

  protected override append(request: ClaimRequest, calledAt: number) {
    return this.#claiming.append(request, calledAt);
  }

  protected override confirm(requests: readonly RenewRequest[], calledAt: number) {
    return this.#renewals.confirm(requests, calledAt);
  }

  protected override buried(refs: readonly ClaimRef[]): Promise<ReadonlySet<string>> {
    return this.#renewals.buried(refs);
  }

  protected override leave(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return release(this.#exit, this.#claims, request);
  }

  protected override shrink(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#renewals.shrink(ref, units);
  }

  protected override changeCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    const [store, leases] = [this.#store, this.#leases];
    return setCapacity(
      { from, to },
      () => readNow(store, leases, name),
      (seen, change) => changeCapacity(store, leases, { name, to }, seen, change),
    );
  }

  protected override states(filter: InspectFilter): AsyncIterable<NameState> {
    return inspectNames(filter, namesOf(this.#store, filter), (name) => stateOf(this.#store, name));
  }

  protected override translated(cause: unknown): unknown {
    return translated(cause);
  }

  protected override async close(): Promise<void> {
    const inUse = new Set(this.#claims.close().map(({ lease }) => lease));
    this.#watches.close();
    await this.#leases.close(inUse);
    if (this.#own) this.#client.close();
  }
}

/** Nobody holds beside it. */
function aloneOf({ token, exact }: EtcdClaim) {
  return { token, floor: token, ...(exact ? { live: [token] } : {}) };
}
