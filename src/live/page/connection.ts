import type { Update } from "../wire.js";

export type Link = "connecting" | "open" | "lost" | "refused";

/** The stream of updates. While the page is hidden it is closed: who does not look costs the store nothing. */
export class Connection {
  link: Link = "connecting";
  heardAt = performance.now();
  #source: EventSource | null = null;
  readonly #update: (update: Update) => void;
  readonly #changed: () => void;

  constructor(update: (update: Update) => void, changed: () => void) {
    this.#update = update;
    this.#changed = changed;
    document.addEventListener("visibilitychange", () => this.#follow());
    this.#follow();
  }

  #follow(): void {
    if (document.hidden) this.#close();
    else if (this.#source === null) this.#open();
  }

  #open(): void {
    const source = new EventSource("events");
    this.#source = source;
    source.addEventListener("message", ({ data }) => {
      this.link = "open";
      this.heardAt = performance.now();
      this.#update(JSON.parse(String(data)) as Update);
    });
    source.addEventListener("error", () => {
      // A browser tries again by itself after a cut, but not after an answer that is no stream.
      this.link = source.readyState === EventSource.CLOSED ? "refused" : "lost";
      if (source.readyState === EventSource.CLOSED) {
        this.#close();
        setTimeout(() => this.#follow(), 5_000);
      }
      this.#changed();
    });
  }

  #close(): void {
    this.#source?.close();
    this.#source = null;
  }
}

/** Ask the server to take a lock away. What came of it, in words. */
export async function release(name: string, token: number): Promise<string> {
  const query = new URLSearchParams({ name, token: String(token) });
  const headers = { "x-holdfast-live-view": "1" };
  const answer = await fetch(`release?${query}`, { method: "POST", headers }).catch(() => null);
  if (answer?.status === 200) return "It was taken away. The holder is told of a loss.";
  if (answer?.status === 409) return "It had just been given back: nothing was taken.";
  if (answer !== null && answer.status < 500)
    return `It was not taken away: ${(await answer.text().catch(() => "")).trim()}`;
  return "It is not known whether it was taken away, as there was no answer. Look at who holds it.";
}
