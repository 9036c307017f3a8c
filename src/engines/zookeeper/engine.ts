import type { EngineEvent } from "../../core/engine.js";
import type { Guarantees } from "../../core/guarantees.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { aloneOf } from "../../queue/answers.js";
import { setCapacity } from "../../queue/capacity.js";
import { QueueEngine } from "../../queue/engine.js";
import { inspectNames } from "../../queue/inspect.js";
import { Turns } from "../../queue/turns.js";
import { changeCapacity } from "./capacity.js";
import { ZooKeeperCells } from "./cells.js";
import { append } from "./claim.js";
import type { ZooKeeperDriver } from "./driver.js";
import { refused } from "./errors.js";
import { guaranteesOf, readVoters } from "./guarantees.js";
import { namesOf, stateOf } from "./inspect.js";
import { agree } from "./layout-version.js";
import { type Found, type NodeClaim, NodeClaims } from "./node-claim.js";
import { Nodes } from "./nodes.js";
import type { Settings } from "./options.js";
import { NodeExit, shrink } from "./release.js";
import { confirm } from "./renew.js";
import { Session } from "./session.js";
import { NodeWatcher } from "./watcher.js";

/** The queue of a name is the sequential nodes in its folder. */
export class ZooKeeperEngine extends QueueEngine<NodeClaim, Found> {
  readonly kind = "zookeeper";
  readonly cells: ZooKeeperCells;
  guarantees: Guarantees = guaranteesOf(0);
  readonly #own: boolean;
  readonly #session: Session;
  readonly #nodes: Nodes;
  readonly #claims: NodeClaims;
  readonly #tell: (event: EngineEvent) => void;

  /** `own`: the client was made for this engine and is closed with it. */
  private constructor(client: ZooKeeperDriver, { clock, base, nodeNames }: Settings, own: boolean) {
    const listeners = new Listeners();
    const tell = (event: EngineEvent): void => listeners.tell(event);
    const session = new Session(client, clock, base, {
      ended: () => this.#sessionEnded(),
      connected: () => this.#connected(),
      warned: (message) => tell({ kind: "warning", message }),
    });
    const nodes = new Nodes(session, base, nodeNames);
    const claims = new NodeClaims(nodes, tell);
    const watcher = new NodeWatcher(nodes, {
      lookUp: (claim) => void turns.lookUp(claim),
      granted: (claim) => turns.push(claim, aloneOf(claim)),
      watchOwn: (claim) => claims.watchOwn(claim),
    });
    const turns = new Turns(watcher, claims, tell);
    const exit = new NodeExit(nodes, claims);
    super(
      clock,
      {
        claims,
        turns,
        exit,
        append: (request, calledAt) => append(nodes, claims, watcher, request, calledAt),
        confirm: (requests, calledAt) => confirm(nodes, claims, watcher, requests, calledAt),
        shrink: (ref, units) => shrink(nodes, claims, ref, units),
        setCapacity: (name, from, to) =>
          setCapacity(
            { from, to },
            async () => ({ queue: await nodes.queueNow(name) }),
            ({ queue }, change) => changeCapacity(nodes, name, to, queue, change),
          ),
        inspect: (filter) => inspectNames(filter, namesOf(nodes, filter), (name) => stateOf(nodes, name)),
        translated: refused,
      },
      listeners,
    );
    this.#own = own;
    this.#session = session;
    this.#nodes = nodes;
    this.#claims = claims;
    this.#tell = tell;
    this.cells = new ZooKeeperCells(nodes);
  }

  static async open(client: ZooKeeperDriver, settings: Settings, own: boolean): Promise<ZooKeeperEngine> {
    const engine = new ZooKeeperEngine(client, settings, own);
    try {
      await engine.#session.start();
      const [voters, refusal] = await Promise.all([readVoters(engine.#session), agree(engine.#nodes)]);
      if (refusal !== null) throw refusal;
      engine.guarantees = guaranteesOf(voters);
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

  protected override async close(): Promise<void> {
    this.cells.close();
    const claims = this.#claims.close();
    // A session that goes on would keep the nodes: the claims end with the engine all the same.
    if (!this.#own) await Promise.allSettled(claims.map((one) => one.inTurn(() => one.remove())));
    await this.#session.close(this.#own);
  }

  #sessionEnded(): void {
    const waiting = this.#claims.all.filter(({ granted, over }) => !granted && !over).length;
    if (waiting > 0) {
      const message = `the ZooKeeper session ended: ${waiting} waiting claims lost their position and join again at the end`;
      this.#tell({ kind: "warning", message });
    }
    this.#nodes.followed.forgetAll();
    this.#claims.loseAll();
  }

  /** Watches were set again, those of an old session are gone: what changed meanwhile has to be asked for. */
  #connected(): void {
    this.#nodes.followed.forgetAll();
    this.#tell({ kind: "wake" });
    this.cells.readAgain();
  }
}
