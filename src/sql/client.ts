import type { EngineEvent } from "../core/engine.js";
import type { Guarantees } from "../core/guarantees.js";
import type { Safety } from "./guarantees.js";
import { guaranteesOf } from "./guarantees.js";

export type ClientParts<Driver, Settings> = {
  /** `unanswered` is called when a call was not answered in time. */
  readonly driver: (unanswered: () => void) => Driver;
  readonly settings: Settings;
  readonly tell: (event: EngineEvent) => void;
  /** Ends a pool that is ours; null for what was handed in. */
  readonly end: (() => Promise<void>) | null;
};

/** One client of a database: what it knows of its server, whether it is told of grants, and whether it is answered. */
export abstract class DatabaseClient<Driver extends { close(): void }, Settings, Server extends Safety> {
  protected readonly driver: Driver;
  protected readonly settings: Settings;
  /** As read by the last probe. */
  protected server: Server;
  /** Whether this client is told of grants and losses. */
  protected pushed = false;
  readonly #parts: ClientParts<Driver, Settings>;
  #silent = false;

  /** `unknown`: what may be said of a server that was not asked yet. */
  constructor(parts: ClientParts<Driver, Settings>, unknown: Server) {
    this.#parts = parts;
    this.settings = parts.settings;
    this.server = unknown;
    this.driver = parts.driver(() => this.unanswered());
  }

  get guarantees(): Guarantees {
    return guaranteesOf(this.server, this.pushed ? "push" : "poll");
  }

  get listens(): boolean {
    return this.pushed;
  }

  async close(): Promise<void> {
    this.driver.close();
    await this.#parts.end?.();
  }

  /** What to do about a call that was not answered, once until there is an answer again. */
  protected abstract wentSilent(): void;

  protected unanswered(): void {
    if (this.#silent) return;
    this.#silent = true;
    this.wentSilent();
  }

  protected answered(): void {
    this.#silent = false;
  }

  protected tell(event: EngineEvent): void {
    this.#parts.tell(event);
  }

  protected warn(message: string): void {
    this.tell({ kind: "warning", message });
  }
}
