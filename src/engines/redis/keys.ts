// Beyond the fixed set of files: the verbs share where a lock's state lies.
import { UnsupportedError } from "../../core/errors.js";
import type { RedisDriver } from "./driver.js";

/** The key of a name, and how long it outlives everything in it. */
export class LockKeys {
  readonly idleMsText: string;
  /** Before every lock's key, as this engine writes it; the client library may put more before that. */
  readonly #prefix: string;

  constructor(prefix: string, idleMs: number) {
    this.#prefix = `${prefix}lock:`;
    this.idleMsText = String(idleMs);
  }

  keyOf(name: string): string {
    return this.#prefix + name;
  }

  nameOf(key: string): string {
    return key.slice(this.#prefix.length);
  }
}

/** A key of ours beside one that other programs share, in the same slot. */
export function keyBeside(driver: RedisDriver, prefix: string, what: string, name: string, id: string): string {
  const tag = hashTag(driver.keyPrefix + name);
  if (driver.topology === "cluster" && tag.includes("}")) {
    throw new UnsupportedError(
      "redis",
      `in a Cluster "${name}" has a "}" that ends no hash tag`,
      "Choose another name.",
    );
  }
  // Braces of the prefix would be the tag.
  return `${prefix.replace(/[{}]/g, "")}${what}:{${tag}}:${id}`;
}

/** What Redis hashes of a key: the part between the first { and the next }, unless that is empty; otherwise all of it. */
function hashTag(key: string): string {
  return /^[^{]*\{([^}]+)\}/.exec(key)?.[1] ?? key;
}
