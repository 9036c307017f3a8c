import type { Cells } from "../../core/cells.js";
import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import { ClosedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import type { Unlisten } from "../../core/unlisten.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { setCapacity } from "./capacity.js";
import { EtcdCells } from "./cells.js";
import { Claiming } from "./claim.js";
import { Claims } from "./claims.js";
import type { EtcdDriver } from "./driver.js";
import { translated } from "./errors.js";
import { Watches } from "./events.js";
import { inspect } from "./inspect.js";
import { Keys } from "./keys.js";
import { Leases } from "./leases.js";
import { TurnLookups } from "./lookups.js";
import type { Compare } from "./messages.js";
import type { Settings } from "./options.js";
import { release } from "./release.js";
import { Renewals } from "./renew.js";
import { createdAt } from "./requests.js";
import { Slots } from "./slots.js";
import { Snapshots } from "./snapshots.js";
import { Store } from "./store.js";

/** The queue is the keys of a name in order of their creation; whoever fits beside all that came before it holds. */
export class EtcdEngine implements Engine {
  readonly kind = "etcd";
  readonly guarantees: Guarantees;
  readonly leaseMinMs: number;
  readonly cells: Cells;
  readonly #client: EtcdDriver;
  readonly #own: boolean;
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #watches: Watches;
  readonly #claims: Claims;
  readonly #snapshots: Snapshots;
  readonly #claiming: Claiming;
  readonly #renewals: Renewals;
  readonly #listeners = new Listeners();
  #closed: Promise<void> | null = null;

  /** `own`: the client was made for this engine and ends with it. */
  constructor(client: EtcdDriver, settings: Settings, guarantees: Guarantees, leaseMinMs: number, own: boolean) {
    const { clock, chance, prefix } = settings;
    this.guarantees = guarantees;
    this.leaseMinMs = leaseMinMs;
    this.#client = client;
    this.#own = own;
    const tell = (event: EngineEvent): void => this.#tell(event);
    this.#store = new Store(client, clock, new Keys(prefix), () => this.#wentBack());
    this.#leases = new Leases(client, clock);
    this.#watches = new Watches(client, clock, chance, tell);
    const slots = new Slots(chance.id());
    this.#claims = new Claims(this.#store, this.#leases, slots, this.#watches, tell, (claim) => lookups.request(claim));
    this.#snapshots = new Snapshots(this.#store);
    const lookups = new TurnLookups(this.#claims, this.#snapshots, tell);
    this.#renewals = new Renewals(this.#claims, this.#snapshots);
    this.#claiming = new Claiming(this.#claims, this.#snapshots, this.#renewals);
    this.cells = new EtcdCells(this.#store, this.#leases, this.#watches);
  }

  async claim(request: ClaimRequest): Promise<ClaimAnswer> {
    return this.#do(() => this.#claiming.claim(request));
  }

  async renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    return this.#do(() => this.#renewals.renew(requests));
  }

  async release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#do(() => release(this.#claims, this.#snapshots, request));
  }

  async resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#do(() => this.#renewals.resize(ref, units));
  }

  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#do(() => setCapacity(this.#store, this.#leases, { name, from, to }));
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    this.#assertOpen();
    try {
      yield* inspect(this.#store, filter);
    } catch (cause) {
      throw translated(cause);
    }
  }

  /** The compare of a transaction that is true while the claim is there and ours. */
  heldCompare(ref: ClaimRef): Compare {
    const local = this.#claims.get(ref);
    const held = local?.granted === true && !local.over;
    return held ? createdAt(local.key, local.token) : createdAt(this.#store.keys.probe, 1);
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#listeners.clear();
    const inUse = this.#claims.close();
    this.#watches.close();
    await this.#leases.close(inUse);
    if (this.#own) this.#client.close();
  }

  async #do<T>(call: () => Promise<T>): Promise<T> {
    this.#assertOpen();
    try {
      return await call();
    } catch (cause) {
      throw translated(cause);
    }
  }

  #assertOpen(): void {
    if (this.#closed !== null) throw new ClosedError("using the etcd engine");
  }

  #tell(event: EngineEvent): void {
    this.#listeners.tell(event);
  }

  /** What was held in the store that answered before is not held in this one. */
  #wentBack(): void {
    this.#tell({ kind: "warning", message: "etcd's revision went back: it was probably restored from a backup" });
    this.#claims.loseAll();
  }
}
