import type { Cells } from "../../core/cells.js";
import type { ClaimRef, EngineEvent } from "../../core/engine.js";
import type { Guarantees } from "../../core/guarantees.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { aloneOf } from "../../queue/answers.js";
import { setCapacity } from "../../queue/capacity.js";
import { QueueEngine } from "../../queue/engine.js";
import { inspectNames } from "../../queue/inspect.js";
import { Turns } from "../../queue/turns.js";
import { changeCapacity, readNow } from "./capacity.js";
import { EtcdCells } from "./cells.js";
import { Claiming } from "./claim.js";
import { type EtcdClaim, EtcdClaims } from "./claims.js";
import type { EtcdDriver } from "./driver.js";
import type { Entry } from "./entries.js";
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
export class EtcdEngine extends QueueEngine<EtcdClaim, Snapshot, Entry> {
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
    const renewals = new Renewals(claims, snapshots, watcher);
    const claiming = new Claiming(claims, snapshots, watcher, renewals);
    super(
      clock,
      {
        claims,
        turns,
        exit: new EtcdExit(claims),
        append: (request, calledAt) => claiming.append(request, calledAt),
        confirm: (requests, calledAt) => renewals.confirm(requests, calledAt),
        shrink: (ref, units) => renewals.shrink(ref, units),
        setCapacity: (name, from, to) =>
          setCapacity(
            { from, to },
            () => readNow(store, leases, name),
            (seen, change) => changeCapacity(store, leases, { name, to }, seen, change),
          ),
        inspect: (filter) => inspectNames(filter, namesOf(store, filter), (name) => stateOf(store, name)),
        translated,
      },
      listeners,
    );
    this.guarantees = guarantees;
    this.leaseMinMs = leaseMinMs;
    this.cells = new EtcdCells(store, leases, watches);
    this.#client = client;
    this.#own = own;
    this.#store = store;
    this.#leases = leases;
    this.#watches = watches;
    this.#claims = claims;
  }

  /** The compare of a transaction that is true while the claim is there and ours. */
  heldCompare(ref: ClaimRef): Compare {
    const local = this.#claims.get(ref);
    const held = local?.granted === true && !local.over;
    return held ? createdAt(local.key, local.token) : createdAt(this.#store.keys.probe, 1);
  }

  protected override async close(): Promise<void> {
    const inUse = new Set(this.#claims.close().map(({ lease }) => lease));
    this.#watches.close();
    await this.#leases.close(inUse);
    if (this.#own) this.#client.close();
  }
}
