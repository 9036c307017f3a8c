import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Clock, Timer } from "../../core/clock.js";
import { POLL_MAX_MS, TOMBSTONE_MS } from "../../core/limits.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import { CellWatchers } from "../../engine-kit/cell-watchers.js";
import { parseWord } from "./codec.js";
import type { RedisDriver } from "./driver.js";
import { translateError } from "./errors.js";
import type { Subscription } from "./events.js";
import { isText, type Scripts, textOf } from "./scripts.js";

export type CellsOptions = {
  readonly driver: RedisDriver;
  readonly scripts: Scripts;
  readonly timeouts: CallTimeouts;
  readonly clock: Clock;
  readonly prefix: string;
  readonly idleMs: number;
  /** Null: nothing is pushed, and watched cells are polled. */
  readonly subscription: Subscription | null;
};

/** One hash for each cell; its changes are published on a channel of the same name. */
export class RedisCells implements Cells {
  readonly #options: CellsOptions;
  readonly #watchers = new CellWatchers({
    first: (name) => this.#subscribe(name),
    last: (name) => this.#unsubscribe(name),
  });
  #pollTimer: Timer | null = null;

  constructor(options: CellsOptions) {
    this.#options = options;
    options.subscription?.onChange((live) => this.#connectionChanged(live));
  }

  async read(name: string): Promise<Cell> {
    const { driver, timeouts } = this.#options;
    const key = this.#key(name);
    try {
      // ioredis prefixes the key of this command by itself, as it does those of scripts.
      const reply = await timeouts.limit(driver.call(key, ["hmget", key, "version", "value"]));
      const [version, value] = reply as [unknown, unknown];
      return isText(value) ? { version: Number(textOf(version)), value: textOf(value) } : { version: 0, value: null };
    } catch (cause) {
      throw translateError(cause);
    }
  }

  async write({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    const key = this.#key(name);
    const args = [operation, String(expected), value === null ? "0" : "1", value ?? "", this.channel(name)];
    args.push(String(TOMBSTONE_MS), String(this.#options.idleMs));
    const text = await this.#options.scripts.text("cellWrite", [key], args);
    const space = text.indexOf(" ");
    const kind = parseWord(text.slice(0, space), "written", "conflict");
    return { kind, cell: cellOf(text.slice(space + 1)) };
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    return this.#watchers.add(name, listener);
  }

  close(): void {
    this.#watchers.clear();
    this.#stopPolling();
  }

  #subscribe(name: string): void {
    const { subscription } = this.#options;
    if (subscription === null || !subscription.live) this.#pollLater();
    const onMessage = (message: string): void => {
      const cell = this.pushed(message);
      if (cell === null) this.#readAndTell(name);
      else this.#watchers.tell(name, cell);
    };
    // A subscription that fails is made again after the reconnect, which then reads the cell.
    subscription?.add(this.channel(name), onMessage).catch(() => {});
  }

  #unsubscribe(name: string): void {
    // Where it fails the connection is gone, and with it the subscription; later messages find no watcher.
    this.#options.subscription?.remove(this.channel(name)).catch(() => {});
    if (this.#watchers.size === 0) this.#stopPolling();
  }

  /** Without a connection watched cells are polled; with a new one they are read once, for the messages that were missed. */
  #connectionChanged(live: boolean): void {
    if (live) {
      this.#stopPolling();
      this.#readWatched();
    } else if (this.#watchers.size > 0) this.#pollLater();
  }

  #readWatched(): void {
    for (const name of this.#watchers.names) this.#readAndTell(name);
  }

  #readAndTell(name: string): void {
    // A cell that cannot be read now is read with the next poll or after the next reconnect.
    this.read(name).then(
      (cell) => this.#watchers.tell(name, cell),
      () => {},
    );
  }

  #pollLater(): void {
    this.#pollTimer ??= this.#options.clock.after(POLL_MAX_MS / 2, () => {
      this.#pollTimer = null;
      this.#readWatched();
      this.#pollLater();
    });
  }

  #stopPolling(): void {
    if (this.#pollTimer !== null) this.#options.clock.cancel(this.#pollTimer);
    this.#pollTimer = null;
  }

  #key(name: string): string {
    return `${this.#options.prefix}cell:${name}`;
  }

  /** The key as the server knows it: programs with different prefixes do not share channels. */
  protected channel(name: string): string {
    return this.#options.driver.keyPrefix + this.#key(name);
  }

  /** The cell that a message on its channel tells; null: it has to be read. */
  protected pushed(message: string): Cell | null {
    return cellOf(message);
  }
}

/** "version", and a line with the value where there is one. */
function cellOf(text: string): Cell {
  const [, version, value] = /^(\d+)\n(.*)$/s.exec(text) ?? [];
  return value === undefined ? { version: 0, value: null } : { version: Number(version), value };
}
