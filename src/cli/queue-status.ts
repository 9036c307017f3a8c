import type { Client } from "../core/client.js";
import { type NameState, ownerText } from "../core/inspect.js";
import { ageText } from "./describe.js";
import { printable } from "./printable.js";

const READ_EVERY_MS = 1_000;

/** While it waits in a terminal: one line with the position in the queue, who holds it and since when. Nothing elsewhere. */
export class QueueStatus {
  readonly #client: Client;
  readonly #name: string;
  #unlisten: () => void;
  #timer: object | null = null;
  /** Which wait it is about: what was asked for an earlier one is not shown any more. */
  #wait = 0;
  #shown = false;

  constructor(client: Client, name: string) {
    this.#client = client;
    this.#name = name;
    this.#unlisten = () => {};
    if (!process.stderr.isTTY) return;
    this.#unlisten = client.events.on("queued", () => void this.#show((this.#wait += 1)));
    // A store that keeps no queue, or does not answer, tells nothing.
    this.#schedule(0);
  }

  /** The wait is over, or somebody else has something to say. */
  clear(): void {
    this.#wait += 1;
    if (this.#timer === null) return;
    this.#client.clock.cancel(this.#timer);
    this.#timer = null;
    if (this.#shown) process.stderr.write("\r\u001b[K");
    this.#shown = false;
  }

  stop(): void {
    this.clear();
    this.#unlisten();
  }

  async #show(wait: number): Promise<void> {
    // The wait itself reports a store that is away; a read that fails shows nothing new, and the next one may.
    const state = await this.#client.state(this.#name).catch(() => undefined);
    if (wait !== this.#wait) return;
    const line = printable(waitingText(this.#client, this.#name, state));
    process.stderr.write(`\r\u001b[K${line.slice(0, (process.stderr.columns || 80) - 1)}`);
    this.#shown = true;
    this.#schedule(wait);
  }

  #schedule(wait: number): void {
    if (this.#timer !== null) this.#client.clock.cancel(this.#timer);
    this.#timer = this.#client.clock.after(READ_EVERY_MS, () => void this.#show(wait));
  }
}

function waitingText(client: Client, name: string, state: NameState | undefined): string {
  const position = (state?.waiters ?? []).findIndex(({ owner }) => owner.client === client.owner.client) + 1;
  const queue = position === 0 ? "" : `: position ${position} of ${state?.waiters.length ?? position}`;
  const [holder, ...others] = state?.holders ?? [];
  if (holder === undefined) return `waiting for "${name}"${queue}`;
  const age = holder.heldMs === undefined ? "" : ` for ${ageText(holder.heldMs)}`;
  const more = others.length === 0 ? "" : ` and ${others.length} more`;
  return `waiting for "${name}"${queue}, held by ${ownerText(holder.owner)}${more}${age}`;
}
