// Beyond the fixed set of files: Redisson's RCountDownLatch in the place of the cells that a latch is made of.
import type { Cell, CellAnswer, CellWrite } from "../../core/cells.js";
import { UnsupportedError } from "../../core/errors.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import { type CellsOptions, RedisCells } from "./cells.js";
import { parseWord } from "./codec.js";
import { translateError } from "./errors.js";
import { keyBeside } from "./keys.js";
import { textOf } from "./scripts.js";

/**
 * An integer at exactly the latch's name. Without one it is open, as it is for Redisson: there is no count that a latch begins
 * with. The count is the version, too: whoever counts down from 3 may do so from any 3.
 */
export class RedissonLatches extends RedisCells {
  readonly #options: CellsOptions;

  constructor(options: CellsOptions) {
    super(options);
    this.#options = options;
  }

  override async read(name: string): Promise<Cell> {
    const { driver, timeouts } = this.#options;
    const reply = await timeouts.limit(driver.call(name, ["get", name])).catch((cause: unknown) => {
      throw translateError(cause);
    });
    return cellOf(reply === null ? "0" : textOf(reply));
  }

  override async write({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    const { driver, prefix, scripts } = this.#options;
    const count = value === null ? 0 : (JSON.parse(value) as { latch: { left: number } }).latch.left;
    const keys = [name, keyBeside(driver, prefix, "operation", name, operation)];
    const args = [String(expected), String(count), this.channel(name), String(TOMBSTONE_MS)];
    args.push(driver.topology === "cluster" ? "1" : "0");
    const [kind = "", left = ""] = (await scripts.text("redissonLatch", keys, args)).split(" ");
    return { kind: parseWord(kind, "written", "conflict"), cell: cellOf(left) };
  }

  protected override channel(name: string): string {
    return `redisson_countdownlatch__channel__{${name}}`;
  }

  /** The message has no count. */
  protected override pushed(): Cell | null {
    return null;
  }
}

function cellOf(count: string): Cell {
  const left = Number(count);
  if (!Number.isSafeInteger(left) || left < 0)
    throw new UnsupportedError(
      "redis",
      `a latch at "${count.slice(0, 80)}"`,
      "Use another name: this is no RCountDownLatch.",
    );
  return { version: left, value: JSON.stringify({ latch: { left } }) };
}
