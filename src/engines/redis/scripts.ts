// Beyond the fixed set of files: how every verb runs its script.
import { EngineRefusedError, NotSentError } from "../../core/errors.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { RedisDriver } from "./driver.js";
import { isNoScript, translateError } from "./errors.js";
import { SCRIPTS } from "./scripts.generated.js";

const NOT_CONNECTED = new NotSentError("not connected");

export type ScriptName = keyof typeof SCRIPTS;

/** How many replicas had an answer when the time was up, and how many should have. */
export type MissingAcks = { readonly acked: number; readonly needed: number };

/** An answer for each request of a call, in order, and whether too few replicas have them, where that matters. */
export type ScriptAnswers = { readonly texts: readonly string[]; readonly missingAcks: MissingAcks | null };

/**
 * One call of a script that takes several requests. By callbacks, one of which is called once and must not throw: where every
 * lock pays for it, a promise for each layer is the main cost.
 */
export type CallScript = (
  name: ScriptName,
  keys: readonly string[],
  args: readonly string[],
  answered: (answers: ScriptAnswers) => void,
  failed: (cause: unknown) => void,
) => void;

/** Runs the scripts by their hash; a server that does not know one (new, restarted, flushed, promoted) is sent the text. */
export class Scripts {
  readonly #driver: RedisDriver;
  readonly #timeouts: CallTimeouts;
  readonly #offline: () => void;
  #refusal: EngineRefusedError | null = null;

  /** `offline` is told of calls that were not sent for want of a connection. */
  constructor(driver: RedisDriver, timeouts: CallTimeouts, offline: () => void = () => {}) {
    this.#driver = driver;
    this.#timeouts = timeouts;
    this.#offline = offline;
  }

  /** From now on nothing but the version is asked for: everything else is refused with the same words. Null: no more. */
  refuse(refusal: EngineRefusedError | null): void {
    this.#refusal = refusal;
  }

  /** An answer that must be text. */
  text(name: ScriptName, keys: readonly string[], args: readonly string[]): Promise<string> {
    return new Promise((resolve, reject) => this.#run(name, keys, args, textOf, resolve, reject));
  }

  /** An answer that must be a list of texts. */
  texts(name: ScriptName, keys: readonly string[], args: readonly string[]): Promise<string[]> {
    return new Promise((resolve, reject) => this.#run(name, keys, args, textsOf, resolve, reject));
  }

  /** Answers to several requests. */
  readonly answers: CallScript = (name, keys, args, answered, failed) =>
    this.#run(name, keys, args, answersOf, answered, failed);

  /** `read` makes of the reply what the caller wants. */
  #run<T>(
    name: ScriptName,
    keys: readonly string[],
    args: readonly string[],
    read: (reply: unknown) => T,
    answered: (answer: T) => void,
    failed: (cause: unknown) => void,
  ): void {
    if (this.#refusal !== null && name !== "layoutVersion") {
      const { engine, advice, cause } = this.#refusal;
      return failed(new EngineRefusedError(engine, advice, cause));
    }
    if (this.#driver.offline) {
      this.#offline();
      return failed(NOT_CONNECTED);
    }
    const call = this.#driver.call(keys[0] ?? "", commandOf(name, keys, args));
    this.#timeouts.watch(
      call,
      (reply) => {
        let answer: T;
        try {
          answer = read(reply);
        } catch (cause) {
          return failed(cause);
        }
        return answered(answer);
      },
      (cause) => {
        if (isNoScript(cause)) this.#sendText(name, keys, args).then(read).then(answered, failed);
        else failed(translateError(cause, this.#driver.topology));
      },
    );
  }

  async #sendText(name: ScriptName, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    try {
      return await this.#timeouts.limit(this.#driver.call(keys[0] ?? "", commandOf(name, keys, args, true)));
    } catch (cause) {
      throw translateError(cause, this.#driver.topology);
    }
  }
}

/** The command that runs a script: by its hash, or `asText`. */
export function commandOf(
  name: ScriptName,
  keys: readonly string[],
  args: readonly string[],
  asText = false,
): readonly string[] {
  const { sha, pieces } = SCRIPTS[name];
  return asText
    ? ["eval", pieces.join("\n"), String(keys.length), ...keys, ...args]
    : ["evalsha", sha, String(keys.length), ...keys, ...args];
}

/** Libraries can be told to answer Buffers, or text in a class of its own (RESP3's verbatim strings). */
export function isText(reply: unknown): boolean {
  return Buffer.isBuffer(reply) || typeof (reply as object | null)?.valueOf() === "string";
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

function answersOf(reply: unknown): ScriptAnswers {
  return { texts: textOf(reply).split("\n"), missingAcks: null };
}
