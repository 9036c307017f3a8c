import { shown } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { InvalidOptionError } from "../core/errors.js";
import { SharedValue } from "./cell.js";

/**
 * A whole number that all programs share; 0 until somebody changes it. Each call counts exactly once, also when its answer
 * is lost and it has to be sent again; where even that cannot be learned, it throws `OutcomeUnknownError`.
 */
export class Counter {
  readonly name: string;
  readonly #value: SharedValue<number>;

  /** @internal */
  constructor(client: Client, name: string) {
    this.name = name;
    this.#value = new SharedValue(client, "counter", name);
  }

  async get(): Promise<number> {
    return (await this.#value.read()).value ?? 0;
  }

  /** Add `by`, which may be negative; answers the sum. */
  async add(by = 1): Promise<number> {
    checkWhole("by", by);
    const { value } = await this.#value.update((before) => checkWhole("the sum", (before ?? 0) + by));
    return value ?? 0;
  }

  /** Set it to `value` if it is `expected`; answers whether it was. */
  async compareAndSet(expected: number, value: number): Promise<boolean> {
    checkWhole("expected", expected);
    checkWhole("value", value);
    let was = false;
    await this.#value.update((before) => {
      was = (before ?? 0) === expected;
      return was && value !== expected ? value : undefined;
    });
    return was;
  }
}

function checkWhole(option: string, value: number): number {
  if (Number.isSafeInteger(value)) return value;
  throw new InvalidOptionError(option, shown(value), "a whole number from -(2^53 - 1) to 2^53 - 1");
}
