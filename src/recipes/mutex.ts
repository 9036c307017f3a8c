import type { Client } from "../core/client.js";
import { Hold } from "../core/hold.js";
import { Lock } from "./lock.js";

/** One holder at a time, in order of arrival. The flow of control that holds it may take it again. */
export class Mutex extends Lock<Hold> {
  /** @internal */
  constructor(client: Client, name: string) {
    super(client, {
      ask: { name, units: 1, capacity: 1 },
      reentrant: true,
      hold: Hold,
      mine: () => true,
    });
  }
}
