import type { Permission, Settings } from "./options.js";

/** What a request does not say of itself: from where it came. The mounts fill it in. */
export type Connection = { readonly remoteAddress?: string | undefined };

const LOOPBACK_ADDRESS = /^(127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1|::ffff:127\.\d{1,3}\.\d{1,3}\.\d{1,3})$/i;
const LOOPBACK_HOST = /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])(:\d{1,5})?$/i;
/** A proxy on this machine makes everybody local. */
const FORWARDED =
  /^(forwarded|via|x-forwarded(-.*)?|x-real-ip|x-client-ip|x-cluster-client-ip|cf-connecting-ip|true-client-ip)$/;

/** As the browser sent it, of a request whose URL may have been made up by a mount. */
const hostOf = (request: Request): string => request.headers.get("host") ?? new URL(request.url).host;

/**
 * Whether it comes from this machine, and meant to: a page of another site can send a browser here under a name of its own,
 * which the Host header tells (DNS rebinding).
 */
function isLocal(request: Request, { remoteAddress }: Connection): boolean {
  return (
    remoteAddress !== undefined &&
    LOOPBACK_ADDRESS.test(remoteAddress) &&
    LOOPBACK_HOST.test(hostOf(request)) &&
    ![...request.headers.keys()].some((header) => FORWARDED.test(header))
  );
}

/** What whoever sent this may do. */
export async function permissionOf(
  request: Request,
  connection: Connection,
  { authorize, release }: Settings,
): Promise<"read" | "release" | null> {
  if (authorize === undefined) return isLocal(request, connection) ? (release ? "release" : "read") : null;
  const permission: Permission = await authorize(request);
  return permission === "read" || permission === "release" ? permission : null;
}

/** Whether no other site's page asks for it. A browser that does not say is trusted: what it asks for changes nothing. */
export function isFromHere({ headers }: Request): boolean {
  const site = headers.get("sec-fetch-site") ?? "none";
  return site === "same-origin" || site === "none";
}

/** The header that the page sends with what changes something; a browser asks before it lets another site's page send it. */
const PAGE_HEADER = "x-holdfast-live-view";

/** Whether the page itself sent it, and no other site in its user's name. Browsers say so; whoever has no browser needs no page. */
export function isFromPage(request: Request, origins: readonly string[]): boolean {
  const { headers } = request;
  const [origin, site] = [headers.get("origin"), headers.get("sec-fetch-site")];
  if (headers.get(PAGE_HEADER) !== "1" || (site !== null && site !== "same-origin")) return false;
  if (origin === null || !URL.canParse(origin)) return false;
  // Not the scheme: behind a proxy that speaks TLS for us we do not know it.
  return new URL(origin).host === hostOf(request).toLowerCase() || origins.includes(origin);
}
