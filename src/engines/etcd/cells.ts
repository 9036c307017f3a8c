import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Unlisten } from "../../core/unlisten.js";
import { CellWatchers } from "../../engine-kit/cell-watchers.js";
import { translated } from "./errors.js";
import type { Watches } from "./events.js";
import type { Leases } from "./leases.js";
import type { KeyValue, TxnRequest, WatchEvent } from "./messages.js";
import { absent, changedAt, get, put, remove } from "./requests.js";
import { type Answered, found, type Store } from "./store.js";

const ABSENT: Cell = { version: 0, value: null };
const TRIES_MAX = 50;

/** A cell is a key; its version is the revision of its last change, which grows over a removal too. */
export class EtcdCells implements Cells {
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #watches: Watches;
  readonly #unwatch = new Map<string, () => void>();
  readonly #watchers = new CellWatchers({
    first: (name) => this.#watch(name),
    last: (name) => {
      this.#unwatch.get(name)?.();
      this.#unwatch.delete(name);
    },
  });

  constructor(store: Store, leases: Leases, watches: Watches) {
    this.#store = store;
    this.#leases = leases;
    this.#watches = watches;
  }

  async read(name: string): Promise<Cell> {
    try {
      return cellOf(found(await this.#store.txn({ success: [get(this.#store.keys.cell(name))] }), 0)[0]);
    } catch (cause) {
      throw translated(cause);
    }
  }

  async write(write: CellWrite): Promise<CellAnswer> {
    try {
      return await this.#write(write);
    } catch (cause) {
      throw translated(cause);
    }
  }

  async #write({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    const [cell, memory] = [this.#store.keys.cell(name), this.#store.keys.operation(operation)];
    const failure = [get(memory), get(cell)];
    // Removed: version 0, as if it had never been there.
    const written: CellAnswer = { kind: "written", cell: ABSENT };
    for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
      const compare = [absent(memory), changedAt(cell, expected)];
      const answered = await this.#remembering((lease) => ({
        compare,
        failure,
        success: [
          value === null ? remove(cell) : put(cell, value, 0n),
          put(memory, JSON.stringify(value === null ? written : { kind: "written", value }), lease),
        ],
      }));
      const { revision } = answered;
      if (answered.response.succeeded) {
        return value === null ? written : { kind: "written", cell: { version: revision, value } };
      }
      const before = recalled(found(answered, 0)[0]);
      if (before !== null) return before;
      const conflict: CellAnswer = { kind: "conflict", cell: cellOf(found(answered, 1)[0]) };
      // Remembered too: its late copy must not take effect after a removal.
      const remembered = await this.#remembering((lease) => ({
        compare: [absent(memory), changedAt(cell, conflict.cell.version)],
        success: [put(memory, JSON.stringify(conflict), lease)],
      }));
      if (remembered.response.succeeded) return conflict;
    }
    throw new Error("others came first, again and again");
  }

  #remembering(request: (lease: bigint) => TxnRequest): Promise<Answered> {
    return this.#leases.bury((lease) => this.#store.txn(request(lease)));
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    return this.#watchers.add(name, listener);
  }

  #watch(name: string): void {
    const key = this.#store.keys.cell(name);
    let heardAt = 0;
    const heard = (events: readonly WatchEvent[]): void => {
      const kv = events.at(-1)?.kv;
      if (kv === undefined) return;
      heardAt = kv.mod_revision;
      // A removal carries the revision at which it happened, and no value.
      this.#watchers.tell(name, kv.create_revision === 0 ? ABSENT : cellOf(kv));
    };
    // What changed meanwhile was not heard: read it.
    const broken = (): void => {
      begin();
      this.#store.txn({ success: [get(key)] }).then(
        (answered) => {
          if (answered.revision >= heardAt) this.#watchers.tellChange(name, cellOf(found(answered, 0)[0]));
        },
        () => {},
      );
    };
    const begin = (): void => void this.#unwatch.set(name, this.#watches.add({ key, heard, broken }));
    begin();
  }
}

function cellOf(kv: KeyValue | undefined): Cell {
  return kv === undefined ? ABSENT : { version: kv.mod_revision, value: kv.value.toString() };
}

/** What the operation was answered the first time. */
function recalled(kv: KeyValue | undefined): CellAnswer | null {
  if (kv === undefined) return null;
  const memory = JSON.parse(kv.value.toString()) as { kind: "written" | "conflict"; cell?: Cell; value?: string };
  const { kind, cell, value = null } = memory;
  return { kind, cell: cell ?? { version: kv.create_revision, value } };
}
