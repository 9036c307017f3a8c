import type { Client } from "../core/client.js";
import { Hold, WriteHold } from "../core/hold.js";
import { READERS_MAX } from "../core/limits.js";
import { Lock } from "./lock.js";

/**
 * Many readers or one writer, in order of arrival: a waiting writer is not overtaken by later readers. A writer may also
 * read, and may become a reader (`downgrade`); a reader cannot become a writer.
 */
export class ReadWrite {
  readonly name: string;
  readonly read: Lock<Hold>;
  readonly write: Lock<WriteHold>;

  /** @internal */
  constructor(client: Client, name: string) {
    this.name = name;
    const capacity = READERS_MAX;
    this.read = new Lock(client, {
      ask: { name, units: 1, capacity },
      reentrant: true,
      hold: Hold,
      mine: (holder) => holder.units < READERS_MAX,
    });
    this.write = new Lock(client, {
      ask: { name, units: READERS_MAX, capacity },
      reentrant: true,
      hold: WriteHold,
      mine: (holder) => holder.units === READERS_MAX,
    });
  }
}
