import type { ClaimRef, EngineEvent } from "../../core/engine.js";
import type { Push } from "./lock-tables.js";
import type { Mailbox } from "./mailbox.js";
import type { WaitingClaims } from "./waiting-claims.js";

type Parts = {
  readonly mailbox: Mailbox;
  readonly waiting: WaitingClaims;
  readonly emit: (event: EngineEvent) => void;
};

/** Which claims of this client wait and which hold, and the pushes that change it: sent to other clients and received. */
export class ClaimEvents {
  readonly #parts: Parts;
  readonly #holds = new Map<string, ClaimRef>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  get holds(): readonly ClaimRef[] {
    return [...this.#holds.values()];
  }

  get holding(): boolean {
    return this.#holds.size > 0;
  }

  /** A claim was answered, or pushed, as `kind`; "unknown" changes nothing. */
  record({ name, id }: ClaimRef, kind: string): void {
    const { waiting } = this.#parts;
    if (kind === "queued") waiting.add({ name, id });
    else if (kind !== "unknown") waiting.remove({ name, id });
    if (kind === "granted") this.#holds.set(`${id} ${name}`, { name, id });
    else if (kind !== "unknown") this.#holds.delete(`${id} ${name}`);
    waiting.startOrStop();
  }

  /** After the commit. */
  send(pushes: readonly Push[]): void {
    const { mailbox } = this.#parts;
    for (const push of pushes) {
      const { client, event, known } = push;
      if (client !== mailbox.address) {
        if (!known) mailbox.send(push);
      } else if (known) {
        this.record(event, event.kind);
      } else {
        // Later, as from any other store: who is pushed to must not run inside the transaction that pushes.
        queueMicrotask(() => this.receive(event));
      }
    }
  }

  receive(event: Push["event"]): void {
    // The program knows already: from an answer, or because the check of waiting claims found it.
    if (event.kind === "granted" && !this.#parts.waiting.remove(event)) return;
    this.record(event, event.kind === "granted" ? "granted" : "gone");
    this.#parts.emit(event);
  }
}
