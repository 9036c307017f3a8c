import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Unlisten } from "../../core/unlisten.js";
import { isLeaseGone, translated } from "./errors.js";
import type { Watches } from "./events.js";
import type { Leases } from "./leases.js";
import type { KeyValue, TxnRequest } from "./messages.js";
import { absent, changedAt, get, put, remove } from "./requests.js";
import { type Answered, found, type Store } from "./store.js";

const ABSENT: Cell = { version: 0, value: null };
const TRIES_MAX = 50;

/** A cell is a key; its version is the revision of its last change, which grows over a removal too. */
export class EtcdCells implements Cells {
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #watches: Watches;

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

  async #remembering(request: (lease: bigint) => TxnRequest): Promise<Answered> {
    const lease = await this.#leases.tombstones();
    try {
      return await this.#store.txn(request(lease.id));
    } catch (cause) {
      if (!isLeaseGone(cause)) throw cause;
      this.#leases.tombstonesLost();
      return this.#store.txn(request((await this.#leases.tombstones()).id));
    }
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    const key = this.#store.keys.cell(name);
    let version = -1;
    let over = false;
    let unwatch = (): void => {};
    const tell = (cell: Cell, at: number): void => {
      if (over || at <= version) return;
      version = at;
      listener(cell);
    };
    const begin = (): void => {
      unwatch = this.#watches.add({
        key,
        heard: (events) => {
          const kv = events.at(-1)?.kv;
          // A removal carries the revision at which it happened, and no value.
          if (kv !== undefined) tell(kv.create_revision === 0 ? ABSENT : cellOf(kv), kv.mod_revision);
        },
        // What changed meanwhile was not heard: read it.
        broken: () => {
          begin();
          this.#store.txn({ success: [get(key)] }).then(
            (answered) => {
              const [kv] = found(answered, 0);
              if (version >= 0 && (kv === undefined || kv.mod_revision > version)) tell(cellOf(kv), answered.revision);
            },
            () => {},
          );
        },
      });
    };
    begin();
    return () => {
      over = true;
      unwatch();
    };
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
