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
import { LocalClaims } from "../../queue/local-claims.js";
import { setCapacity } from "./capacity.js";
import { ZooKeeperCells } from "./cells.js";
import { claim } from "./claim.js";
import type { ZooKeeperDriver } from "./driver.js";
import { refused } from "./errors.js";
import { guaranteesOf, readVoters } from "./guarantees.js";
import { inspectNames } from "./inspect.js";
import { NodeClaim } from "./node-claim.js";
import { Nodes } from "./nodes.js";
import type { Settings } from "./options.js";
import { release, resize } from "./release.js";
import { renew } from "./renew.js";
import { Session } from "./session.js";

/** The queue of a name is the sequential nodes in its folder; whoever fits beside all that came before it holds. */
export class ZooKeeperEngine implements Engine {
  readonly kind = "zookeeper";
  readonly cells: ZooKeeperCells;
  guarantees: Guarantees = guaranteesOf(0);
  readonly #own: boolean;
  readonly #session: Session;
  readonly #nodes: Nodes;
  readonly #claims: LocalClaims<NodeClaim>;
  readonly #listeners = new Listeners();
  #closed = false;

  /** `own`: the client was made for this engine and is closed with it. */
  private constructor(client: ZooKeeperDriver, { clock, base, nodeNames }: Settings, own: boolean) {
    this.#own = own;
    this.#session = new Session(client, clock, base, {
      ended: () => this.#sessionEnded(),
      connected: () => this.#connected(),
      warned: (message) => this.#tell({ kind: "warning", message }),
    });
    this.#nodes = new Nodes(this.#session, base, nodeNames);
    this.#claims = new LocalClaims(clock, async (due) => {
      for (const one of due) one.expire();
    });
    this.cells = new ZooKeeperCells(this.#nodes);
  }

  static async open(client: ZooKeeperDriver, settings: Settings, own: boolean): Promise<ZooKeeperEngine> {
    const engine = new ZooKeeperEngine(client, settings, own);
    try {
      await engine.#session.start();
      engine.guarantees = guaranteesOf(await readVoters(engine.#session));
      return engine;
    } catch (error) {
      await engine[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** A holder that dies is noticed no sooner than this, however short its lease. */
  get leaseMinMs(): number {
    return this.#session.timeoutMs;
  }

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    return this.#answer("claiming", (calledAt) => {
      const known = this.#claims.get(request);
      const tell = (event: EngineEvent): void => this.#tell(event);
      const local = known ?? this.#claims.add(new NodeClaim(this.#nodes, this.#claims, tell, request));
      return claim(this.#nodes, local, calledAt);
    });
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#answer("releasing", () => release(this.#nodes, this.#claims, request), true);
  }

  renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    return this.#answer("renewing", (calledAt) => renew(this.#nodes, this.#claims, requests, calledAt), true);
  }

  resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#answer("resizing", () => resize(this.#nodes, this.#claims, ref, units));
  }

  setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#answer("setting the capacity", () => setCapacity(this.#nodes, name, from, to));
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    this.#assertOpen("inspecting");
    try {
      yield* inspectNames(this.#nodes, filter);
    } catch (error) {
      throw refused(error);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#listeners.clear();
    this.cells.close();
    const claims = this.#claims.close();
    for (const one of claims) one.end();
    // A session that goes on would keep the nodes: the claims end with the engine all the same.
    if (!this.#own) await Promise.allSettled(claims.map((one) => one.inTurn(() => one.node.remove())));
    await this.#session.close(this.#own);
  }

  #sessionEnded(): void {
    const claims = this.#claims.all;
    const waiting = claims.filter(({ granted }) => !granted).length;
    if (waiting > 0) {
      const message = `the ZooKeeper session ended: ${waiting} waiting claims lost their position and join again at the end`;
      this.#tell({ kind: "warning", message });
    }
    for (const one of claims) one.end();
  }

  /** Watches were set again, those of an old session are gone: what changed meanwhile has to be asked for. */
  #connected(): void {
    this.#tell({ kind: "wake" });
    this.cells.readAgain();
  }

  #tell(event: EngineEvent): void {
    if (!this.#closed) this.#listeners.tell(event);
  }

  /** `holder`: see `adviceOn`. */
  async #answer<T>(doing: string, call: (calledAt: number) => Promise<T>, holder = false): Promise<T> {
    this.#assertOpen(doing);
    try {
      return await call(this.#session.clock.now());
    } catch (error) {
      throw refused(error, holder);
    }
  }

  #assertOpen(doing: string): void {
    if (this.#closed) throw new ClosedError(`${doing} with the zookeeper engine`);
  }
}
