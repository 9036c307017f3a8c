import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Clock, Timer } from "../../core/clock.js";
import { POLL_MAX_MS, TOMBSTONE_MS } from "../../core/limits.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { RedisLike } from "./client.js";
import { parseWord } from "./codec.js";
import { translated } from "./refusals.js";
import { isText, type Scripts, textOf } from "./scripts.js";
import type { Subscription } from "./subscription.js";

type Watched = { readonly listeners: Set<(cell: Cell) => void>; seen: number };

export type CellParts = {
  readonly client: RedisLike;
  readonly scripts: Scripts;
  readonly deadlines: CallTimeouts;
  readonly clock: Clock;
  readonly prefix: string;
  readonly idleMs: number;
  /** Null: nothing is heard, and watched cells are read again and again. */
  readonly subscription: Subscription | null;
};

/** One hash for each cell; a channel of the same name tells its watchers. */
export class RedisCells implements Cells {
  readonly #parts: CellParts;
  readonly #watched = new Map<string, Watched>();
  #timer: Timer | null = null;

  constructor(parts: CellParts) {
    this.#parts = parts;
  }

  async read(name: string): Promise<Cell> {
    const { client, deadlines } = this.#parts;
    const key = this.#key(name);
    try {
      // ioredis prefixes the key of this command by itself, as it does those of scripts.
      const reply = await deadlines.limit(client.call(key, ["hmget", key, "version", "value"]));
      const [version, value] = reply as [unknown, unknown];
      return isText(value) ? { version: Number(textOf(version)), value: textOf(value) } : { version: 0, value: null };
    } catch (cause) {
      throw translated(cause);
    }
  }

  async write({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    const key = this.#key(name);
    const args = [operation, String(expected), value === null ? "0" : "1", value ?? "", this.#channel(name)];
    args.push(String(TOMBSTONE_MS), String(this.#parts.idleMs));
    const text = await this.#parts.scripts.text("cellWrite", [key], args);
    const space = text.indexOf(" ");
    const kind = parseWord(text.slice(0, space), "written", "conflict");
    return { kind, cell: cellOf(text.slice(space + 1)) };
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    let watched = this.#watched.get(name);
    if (watched === undefined) this.#watched.set(name, (watched = this.#begin(name)));
    const { listeners } = watched;
    // Each its own, so that one listener may watch twice and leave once.
    const told = (cell: Cell): void => listener(cell);
    listeners.add(told);
    return () => {
      if (listeners.delete(told) && listeners.size === 0) this.#end(name);
    };
  }

  /** While nothing is heard, watched cells are read again and again; afterwards once, for what was missed. */
  hears(live: boolean): void {
    if (live) {
      this.#stopPolling();
      this.#readAgain();
    } else if (this.#watched.size > 0) this.#poll();
  }

  close(): void {
    this.#watched.clear();
    this.#stopPolling();
  }

  #readAgain(): void {
    for (const [name, watched] of this.#watched) {
      // A cell that cannot be read now is read at the next occasion.
      this.read(name).then(
        (cell) => this.#tell(watched, cell),
        () => {},
      );
    }
  }

  #key(name: string): string {
    return `${this.#parts.prefix}cell:${name}`;
  }

  /** The key as the server knows it: programs with different prefixes do not hear each other. */
  #channel(name: string): string {
    return this.#parts.client.keyPrefix + this.#key(name);
  }

  #begin(name: string): Watched {
    const watched: Watched = { listeners: new Set(), seen: -1 };
    const { subscription } = this.#parts;
    if (subscription === null || !subscription.live) this.#poll();
    if (subscription !== null) {
      const heard = (message: string): void => this.#tell(watched, cellOf(message));
      // A subscription that fails is made again after the reconnect, which then reads the cell.
      subscription.add(this.#channel(name), heard).catch(() => {});
    }
    return watched;
  }

  #end(name: string): void {
    this.#watched.delete(name);
    // Where it fails the connection is gone, and with it the subscription; what is still heard finds nobody.
    this.#parts.subscription?.remove(this.#channel(name)).catch(() => {});
    if (this.#watched.size === 0) this.#stopPolling();
  }

  #tell(watched: Watched, cell: Cell): void {
    if (cell.version === watched.seen) return;
    watched.seen = cell.version;
    for (const listener of watched.listeners) listener(cell);
  }

  #poll(): void {
    this.#timer ??= this.#parts.clock.after(POLL_MAX_MS / 2, () => {
      this.#timer = null;
      this.#readAgain();
      this.#poll();
    });
  }

  #stopPolling(): void {
    if (this.#timer !== null) this.#parts.clock.cancel(this.#timer);
    this.#timer = null;
  }
}

/** "version", and a line with the value where there is one. */
function cellOf(text: string): Cell {
  const line = text.indexOf("\n");
  if (line < 0) return { version: 0, value: null };
  return { version: Number(text.slice(0, line)), value: text.slice(line + 1) };
}
