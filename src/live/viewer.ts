import { BEHIND_MAX_BYTES } from "./limits.js";

/**
 * One open page: a stream that holds back what its reader does not take. It never keeps more than a bound: who falls
 * behind further gets a new picture instead of all the changes.
 */
export class Viewer {
  readonly body: ReadableStream<Uint8Array>;
  readonly #picture: () => Iterator<Uint8Array>;
  readonly #left: () => void;
  /** What is left of the whole picture. Changes wait until it is sent. */
  #pieces: Iterator<Uint8Array> | null;
  #changes: Uint8Array[] = [];
  #bytes = 0;
  #ended = false;
  #news: () => void = () => {};
  /** Its reader has taken everything, and waits for more. */
  #waits = false;
  #stop: () => void = () => {};
  /** When it was opened. */
  readonly openedAt: number;
  /** Since when something waits for it; null: it has taken everything. */
  stalledSince: number | null = null;

  /** `picture` makes the whole picture anew; `left` is called when it has ended, whoever ended it. */
  constructor(picture: () => Iterator<Uint8Array>, left: (viewer: Viewer) => void, now: number) {
    this.openedAt = now;
    this.#picture = picture;
    this.#left = () => left(this);
    this.#pieces = picture();
    this.body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          // Whoever does not read would keep what was written last, and its connection, for ever: an error makes servers cut it.
          this.#stop = () =>
            this.#waits ? controller.close() : controller.error(new Error("Its reader fell behind."));
        },
        pull: async (controller) => {
          this.stalledSince = null;
          for (;;) {
            const piece = this.#next();
            if (piece !== undefined) return controller.enqueue(piece);
            if (this.#ended) return;
            this.#waits = true;
            await new Promise<void>((resolve) => (this.#news = resolve));
            this.#waits = false;
          }
        },
        cancel: () => {
          this.#stop = () => {};
          this.end();
        },
      },
      // Nothing is taken before its reader asks: what waits, waits here, where it is counted.
      { highWaterMark: 0 },
    );
  }

  send(message: Uint8Array, now: number): void {
    if (this.#ended) return;
    this.stalledSince ??= now;
    this.#changes.push(message);
    this.#bytes += message.byteLength;
    if (this.#bytes > BEHIND_MAX_BYTES) {
      this.#forget();
      this.#pieces = this.#picture();
    }
    this.#news();
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#pieces = null;
    this.#forget();
    // At once, and not when it is read next.
    this.#stop();
    this.#news();
    this.#left();
  }

  #forget(): void {
    this.#changes = [];
    this.#bytes = 0;
  }

  #next(): Uint8Array | undefined {
    const piece = this.#pieces?.next();
    if (piece !== undefined && !piece.done) return piece.value;
    this.#pieces = null;
    const change = this.#changes.shift();
    this.#bytes -= change?.byteLength ?? 0;
    return change;
  }
}
