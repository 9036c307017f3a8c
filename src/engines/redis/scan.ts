import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { RedisLike } from "./client.js";
import { translated } from "./refusals.js";
import { textsOf } from "./scripts.js";

const SCAN_COUNT = "1000";

/** Every key that begins with `start`, on all primaries, each once, as the library wants it (without its own prefix). */
export async function* keysLike(client: RedisLike, deadlines: CallTimeouts, start: string): AsyncGenerator<string> {
  const { keyPrefix } = client;
  // In a pattern these would mean something else.
  const pattern = `${(keyPrefix + start).replace(/[*?[\]\\^-]/g, "\\$&")}*`;
  // SCAN may show a key twice, and while a slot moves two servers may.
  const seen = new Set<string>();
  for (const call of await client.primaries()) {
    let cursor = "0";
    do {
      let reply: unknown;
      try {
        reply = await deadlines.limit(call(["scan", cursor, "match", pattern, "count", SCAN_COUNT]));
      } catch (cause) {
        throw translated(cause);
      }
      const [next, keys] = reply as [unknown, unknown];
      for (const key of textsOf(keys)) {
        if (seen.has(key)) continue;
        seen.add(key);
        yield key.slice(keyPrefix.length);
      }
      cursor = String(next);
    } while (cursor !== "0");
  }
}
