import { onTestFinished } from "vitest";
import type { ConnectOptions } from "../../src/connect.js";
import { type LiveView, type LiveViewOptions, liveView } from "../../src/live/index.js";
import type { NameView, Update } from "../../src/live/wire.js";
import { settle } from "../../src/testing/fake-clock.js";
import { rig } from "./rig.js";

export const LOCAL = { remoteAddress: "127.0.0.1" };

/** A live view over a memory store, and how often the store was read. */
export async function liveRig(options: LiveViewOptions = {}, connectOptions: ConnectOptions = {}) {
  const base = rig();
  const { locks } = await base.open({ label: "the view", ...connectOptions });
  const { engine } = locks.client;
  const reads = { all: 0, name: 0 };
  /** Put something else in the way of readings while the test runs. */
  const hooks: { before: () => Promise<void> } = { before: async () => {} };
  const inspect = engine.inspect.bind(engine);
  engine.inspect = async function* (filter = {}) {
    if (filter.name === undefined) reads.all += 1;
    else reads.name += 1;
    await hooks.before();
    yield* inspect(filter);
  };
  const view = liveView(locks, options);
  onTestFinished(() => view.close());
  return { ...base, locks, view, reads, hooks };
}

export function get(
  view: LiveView,
  path = "/locks/",
  headers: Record<string, string> = {},
  connection: object = LOCAL,
) {
  return view(new Request(`http://localhost${path}`, { headers: { host: "localhost:3000", ...headers } }), connection);
}

const PAGE_HEADERS = {
  host: "localhost:3000",
  origin: "http://localhost:3000",
  "sec-fetch-site": "same-origin",
  "x-holdfast-live-view": "1",
};

export function postRelease(view: LiveView, name: string, token: number, headers: Record<string, string> = {}) {
  const query = new URLSearchParams({ name, token: String(token) });
  const all = Object.entries({ ...PAGE_HEADERS, ...headers }).filter(([, value]) => value !== "");
  return view(
    new Request(`http://localhost/locks/release?${query.toString()}`, {
      method: "POST",
      headers: Object.fromEntries(all),
    }),
    LOCAL,
  );
}

/** What a page would know: it reads the stream and keeps the picture. */
export class Reader {
  readonly updates: Update[] = [];
  readonly names = new Map<string, NameView>();
  ended = false;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #text = "";
  #told = 0;
  #pumping = false;

  constructor(response: Response) {
    if (response.body === null) throw new Error("no stream");
    this.#reader = response.body.getReader() as ReadableStreamDefaultReader<Uint8Array>;
  }

  /** Everything that came since this was called last. */
  async read(): Promise<readonly Update[]> {
    this.#pump();
    for (let turns = 0; turns < 5; turns += 1) await settle();
    const from = this.#told;
    this.#told = this.updates.length;
    return this.updates.slice(from);
  }

  leave(): Promise<void> {
    return this.#reader.cancel();
  }

  #pump(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    void (async () => {
      for (let piece = await this.#reader.read(); !piece.done; piece = await this.#reader.read())
        this.#take(piece.value);
      this.ended = true;
    })();
  }

  #take(piece: Uint8Array): void {
    this.#text += new TextDecoder().decode(piece);
    const messages = this.#text.split("\n\n");
    this.#text = messages.pop() ?? "";
    for (const message of messages) {
      const update = JSON.parse(message.replace(/^data: /, "")) as Update;
      this.updates.push(update);
      if (update.reset) this.names.clear();
      for (const view of update.set ?? []) this.names.set(view.name, view);
      for (const name of update.gone ?? []) this.names.delete(name);
    }
  }
}
