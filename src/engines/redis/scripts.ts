import { NotSentError } from "../../core/errors.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { RedisLike } from "./client.js";
import { isNoScript, translated } from "./refusals.js";
import { SCRIPTS } from "./scripts.generated.js";

const NOT_CONNECTED = new NotSentError("not connected");

export type ScriptName = keyof typeof SCRIPTS;

/** Runs the scripts by their hash; a server that does not know one (new, restarted, flushed, promoted) is sent the text. */
export class Scripts {
  readonly #client: RedisLike;
  readonly #deadlines: CallTimeouts;

  constructor(client: RedisLike, deadlines: CallTimeouts) {
    this.#client = client;
    this.#deadlines = deadlines;
  }

  /** `read` makes of the answer what the caller wants: one promise for all of this, because every lock pays for it. */
  run<T>(name: ScriptName, keys: readonly string[], args: readonly string[], read: (reply: unknown) => T): Promise<T> {
    if (this.#client.offline) return Promise.reject(NOT_CONNECTED);
    const call = this.#client.call(keys[0] ?? "", commandOf(name, keys, args));
    return this.#deadlines.limit(call).then(read, async (cause: unknown) => {
      if (!isNoScript(cause)) throw translated(cause, this.#client.topology);
      return read(await this.#whole(name, keys, args));
    });
  }

  async #whole(name: ScriptName, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    try {
      return await this.#deadlines.limit(this.#client.call(keys[0] ?? "", commandOf(name, keys, args, true)));
    } catch (cause) {
      throw translated(cause, this.#client.topology);
    }
  }

  /** An answer that must be text. */
  text(name: ScriptName, keys: readonly string[], args: readonly string[]): Promise<string> {
    return this.run(name, keys, args, textOf);
  }

  /** An answer that must be a list of texts. */
  texts(name: ScriptName, keys: readonly string[], args: readonly string[]): Promise<string[]> {
    return this.run(name, keys, args, textsOf);
  }
}

export function commandOf(
  name: ScriptName,
  keys: readonly string[],
  args: readonly string[],
  whole = false,
): readonly string[] {
  const { sha, pieces } = SCRIPTS[name];
  return whole
    ? ["eval", pieces.join("\n"), String(keys.length), ...keys, ...args]
    : ["evalsha", sha, String(keys.length), ...keys, ...args];
}

/** Libraries can be told to answer Buffers, or text in a class of its own (RESP3's verbatim strings). */
export function isText(reply: unknown): boolean {
  return typeof reply === "string" || Buffer.isBuffer(reply) || typeof (reply as object | null)?.valueOf() === "string";
}

export function textOf(reply: unknown): string {
  if (typeof reply === "string") return reply;
  if (isText(reply)) return String(reply);
  throw new Error(`the script answered a ${typeof reply} where a text was expected`);
}

export function textsOf(reply: unknown): string[] {
  if (Array.isArray(reply)) return reply.map(textOf);
  throw new Error(`the script answered a ${typeof reply} where a list was expected`);
}
