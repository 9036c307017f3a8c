import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRequest,
  EngineEvent,
  Fence,
  Granted,
  Mismatch,
  Queued,
  RenewAnswer,
} from "../../core/engine.js";
import type { ClaimState, HolderState, NameState, Owner } from "../../core/inspect.js";
import { waiterLeaseMs } from "../../core/limits.js";

/** The texts that the scripts and this engine exchange. Their grammar stands in the headers of lua/*.lua. */

/** Most claims of a client have the same owner: written once. */
const ownerTexts = new WeakMap<Owner, string>();

function ownerText(owner: Owner): string {
  let text = ownerTexts.get(owner);
  if (text === undefined) ownerTexts.set(owner, (text = JSON.stringify(owner)));
  return text;
}

/** The claim written last: a quorum sends it to all its members. */
let lastClaim: { readonly claim: ClaimRequest; readonly idleMs: number; readonly text: string } | null = null;

/** The first two lines of a claim's request, as lua/claim.lua describes it. */
export function claimText(claim: ClaimRequest, idleMs: number): string {
  if (lastClaim?.claim !== claim || lastClaim.idleMs !== idleMs) {
    lastClaim = { claim, idleMs, text: writeClaim(claim, idleMs) };
  }
  return lastClaim.text;
}

function writeClaim(
  { id, capacity, units, wait, leaseMs, exact, tokenAtLeast = 0 }: ClaimRequest,
  idleMs: number,
): string {
  return `${leaseMs} ${tokenAtLeast} ${exact ? 1 : 0} ${capacity} ${units} ${wait ? 1 : 0} ${waiterLeaseMs(leaseMs)} ${leaseMs + idleMs}\n${id}`;
}

/** The rest of it, which is the same for most claims of a client. */
export function claimRest({ owner, data }: ClaimRequest, channel: string): string {
  const text = `${channel}\n${ownerText(owner)}`;
  return data === undefined ? text : `${text}\n${data}`;
}

/** The holder seen last: waiters of one name hear of the same one again and again. */
let lastHolder: readonly [text: string, owner: Owner] | null = null;

function holderOf(text: string): Pick<Queued, "holder"> {
  if (text === "") return {};
  if (lastHolder?.[0] !== text) lastHolder = [text, JSON.parse(text) as Owner];
  return { holder: lastHolder[1] };
}

/** "token floor [live]" */
function fenceOf(token: string | undefined, floor: string | undefined, live: string | undefined): Fence {
  const fence = { token: Number(token), floor: Number(floor) };
  return live === undefined ? fence : { ...fence, live: live.split(",").map(Number) };
}

/** The grant read last: the members of a quorum answer alike. */
let lastGranted: readonly [text: string, granted: Granted] | null = null;

function grantedOf(text: string): Granted {
  const [, leftMs, token, floor, live] = text.split(" ");
  return { kind: "granted", leftMs: Number(leftMs), ...fenceOf(token, floor, live) };
}

function unexpected(text: string): Error {
  return new Error(`the script answered "${text.slice(0, 80)}", which means nothing here`);
}

export function parseRenewal(text: string): Exclude<RenewAnswer, { kind: "unknown" }> {
  if (text.startsWith("granted ")) {
    if (lastGranted?.[0] !== text) lastGranted = [text, grantedOf(text)];
    return lastGranted[1];
  }
  if (text.startsWith("queued ")) {
    const [, lastToken, nextMs] = text.split(" ", 3);
    const holder = text.slice(`queued ${lastToken} ${nextMs} `.length);
    return {
      kind: "queued",
      lastToken: Number(lastToken),
      nextMs: nextMs === "-" ? null : Number(nextMs),
      ...holderOf(holder),
    };
  }
  if (text === "gone") return { kind: "gone" };
  if (text === "revoked") return { kind: "gone", revoked: true };
  throw unexpected(text);
}

export function parseAnswer(text: string): ClaimAnswer {
  if (text.startsWith("busy ")) {
    const [, nextMs] = text.split(" ", 2);
    return { kind: "busy", nextMs: Number(nextMs), ...holderOf(text.slice(`busy ${nextMs} `.length)) };
  }
  return text.startsWith("mismatch ") ? mismatchOf(text) : parseRenewal(text);
}

export function parseCapacity(text: string): CapacityAnswer {
  return text.startsWith("mismatch ") ? mismatchOf(text) : { kind: parseWord(text, "set") };
}

function mismatchOf(text: string): Mismatch {
  return { kind: "mismatch", capacity: Number(text.slice("mismatch ".length)) };
}

/** One of the words that a script may answer. */
export function parseWord<Word extends string>(text: string, ...words: readonly Word[]): Word {
  const word = words.find((one) => one === text);
  if (word === undefined) throw unexpected(text);
  return word;
}

/** A push: what happened, to which claim, at which key, and its fence. Undefined for what is not ours. */
export function parsePush(message: string, nameOf: (key: string) => string): EngineEvent | undefined {
  const [kind, id, key, fence] = message.split("\n");
  if (id === undefined || key === undefined) return undefined;
  const name = nameOf(key);
  if (kind === "lost") return { kind, name, id };
  const [token, floor, live] = (fence ?? "").split(" ");
  return kind === "granted" ? { kind, name, id, ...fenceOf(token, floor, live) } : undefined;
}

/** What `inspect.lua` tells of a busy name; undefined for an idle one. */
export function parseState(name: string, [head, ...claims]: readonly string[]): NameState | undefined {
  if (head === undefined) return undefined;
  const [, capacity, lastToken] = head.split(" ");
  const holders: HolderState[] = [];
  const waiters: ClaimState[] = [];
  for (const text of claims) {
    const [numbers = "", id = "", owner = "", ...data] = text.split("\n");
    const [, units, leftMs, token] = numbers.split(" ");
    const state: ClaimState = {
      id,
      units: Number(units),
      leftMs: Number(leftMs),
      owner: JSON.parse(owner) as Owner,
      ...(data.length > 0 ? { data: data.join("\n") } : {}),
    };
    if (token === "0") waiters.push(state);
    else holders.push({ ...state, token: Number(token) });
  }
  return { name, capacity: Number(capacity), lastToken: Number(lastToken), holders, waiters };
}
