import { shown } from "../core/checks.js";
import { InvalidOptionError } from "../core/errors.js";
import { forceRelease } from "../core/force-release.js";
import type { Locks } from "../locks.js";
import { type Connection, isFromHere, isFromPage, permissionOf } from "./access.js";
import { type Asset, assetOf } from "./assets.js";
import { pageHtml } from "./html.js";
import { Loop } from "./loop.js";
import { checkOptions, type LiveViewOptions, type Settings } from "./options.js";

/** Answers the requests of its page, at whatever path it is mounted. `close` ends all streams. */
export type LiveView = ((request: Request, connection?: Connection) => Promise<Response>) &
  Disposable & { close(): void };

/**
 * A page in the browser that shows who holds, who waits and who blocks whom, live. Locked by default: without `authorize` it answers
 * only requests from this machine, which need `connection` to be known; the mounts know it.
 */
export function liveView(locks: Locks, options: LiveViewOptions = {}): LiveView {
  if (typeof locks?.owner?.client !== "string") {
    throw new InvalidOptionError("locks", shown(locks), "locks made by connect");
  }
  const view = new Handler(locks, checkOptions(options));
  const handle = (request: Request, connection: Connection = {}): Promise<Response> => view.answer(request, connection);
  const close = (): void => view.close();
  return Object.assign(handle, { close, [Symbol.dispose]: close });
}

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src data:",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join("; ");

const HEADERS = {
  "cache-control": "no-store",
  "content-security-policy": POLICY,
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "same-origin",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
};

class Handler {
  readonly #locks: Locks;
  readonly #settings: Settings;
  readonly #loop: Loop;

  constructor(locks: Locks, settings: Settings) {
    this.#locks = locks;
    this.#settings = settings;
    this.#loop = new Loop(locks.client, settings);
  }

  close(): void {
    this.#loop.close();
  }

  async answer(request: Request, connection: Connection): Promise<Response> {
    try {
      const permission = await permissionOf(request, connection, this.#settings);
      if (permission === null) return refusal(this.#settings);
      if (this.#loop.closed) return plain(503, "The live view is closed.");
      return await this.#route(request, permission === "release");
    } catch (cause) {
      // What went wrong is for the program: who looks may be anybody.
      const message = "a request of the live view failed";
      this.#locks.client.events.emit("warning", () => ({ message, cause }));
      return plain(500, "Something went wrong. The program that mounted this page was told.");
    }
  }

  /** By the last part of the path: what stands before it is where the view is mounted. */
  async #route(request: Request, mayRelease: boolean): Promise<Response> {
    const url = new URL(request.url);
    const last = url.pathname.slice(url.pathname.lastIndexOf("/") + 1);
    const isRead = request.method === "GET" || request.method === "HEAD";
    if (last === "release") {
      return request.method === "POST" ? this.#release(request, url, mayRelease) : notAllowed("POST");
    }
    if (!isRead) return notAllowed("GET, HEAD");
    if (last === "") return this.#page(url);
    if (last === "events") return this.#events(request, mayRelease);
    const asset = assetOf(last);
    if (asset !== undefined) return assetAnswer(request, asset);
    if (last.includes(".")) return plain(404, "There is no such file.");
    // Relative addresses need the slash. The dot keeps what stands in the path from being read as an address.
    return new Response(null, { status: 307, headers: { ...HEADERS, location: `./${last}/${url.search}` } });
  }

  async #page(url: URL): Promise<Response> {
    const { views } = await this.#loop.look();
    const { status } = this.#loop;
    const search = (url.searchParams.get("q") ?? "").slice(0, 512);
    const html = pageHtml({ views, status, now: this.#loop.now(), search });
    return new Response(html, { headers: { ...HEADERS, "content-type": "text/html; charset=utf-8" } });
  }

  #events(request: Request, mayRelease: boolean): Response {
    if (request.method === "HEAD") return notAllowed("GET");
    // Another site's page could not read it, but it would take a place, and have the store read.
    if (!isFromHere(request)) return plain(403, "Only the page itself may ask for this.");
    if (this.#loop.viewers >= this.#settings.viewers) {
      return plain(503, `There are ${this.#settings.viewers} pages open, which is the most.`);
    }
    const viewer = this.#loop.open(mayRelease);
    const headers = { ...HEADERS, "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no" };
    return new Response(viewer.body, { headers });
  }

  async #release(request: Request, url: URL, mayRelease: boolean): Promise<Response> {
    if (!mayRelease) return plain(403, "Taking locks away is not allowed here.");
    if (!isFromPage(request, this.#settings.origins)) return plain(403, "Only the page itself may ask for this.");
    const name = url.searchParams.get("name") ?? "";
    const token = url.searchParams.get("token") ?? "";
    if (name === "" || !/^\d{1,16}$/.test(token)) return plain(400, "Say the name and the token of the holder.");
    // Who is not shown a name has no say over it.
    if (!name.startsWith(this.#settings.prefix)) return plain(403, "This page is not for that name.");
    const { client } = this.#locks;
    // By its token, and no other: the holder that the question named.
    const holder = (await client.state(name))?.holders.find((one) => one.token === Number(token));
    const released = holder !== undefined && (await forceRelease(client, name, holder));
    this.#loop.hurry();
    return released ? json(200, { released }) : json(409, { released });
  }
}

function refusal({ authorize }: Settings): Response {
  return authorize === undefined
    ? plain(
        403,
        "This page answers only requests from its own machine, at localhost. Give liveView an authorize function to change that.",
      )
    : plain(403, "You may not look at this page.");
}

function plain(status: number, message: string, headers: Record<string, string> = {}): Response {
  const type = { "content-type": "text/plain; charset=utf-8" };
  return new Response(`${message}\n`, { status, headers: { ...HEADERS, ...type, ...headers } });
}

const notAllowed = (allow: string): Response => plain(405, `Only ${allow}.`, { allow });

function json(status: number, value: unknown): Response {
  return new Response(JSON.stringify(value), { status, headers: { ...HEADERS, "content-type": "application/json" } });
}

function assetAnswer(request: Request, { type, plain, gzip }: Asset): Response {
  const zipped = /\bgzip\b/.test(request.headers.get("accept-encoding") ?? "");
  const encoding = zipped ? { "content-encoding": "gzip" } : {};
  const headers = { ...HEADERS, ...encoding, "content-type": `${type}; charset=utf-8`, vary: "accept-encoding" };
  return new Response(Buffer.from(zipped ? gzip : plain), { headers });
}
