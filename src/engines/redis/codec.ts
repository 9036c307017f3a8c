// Beyond the fixed set of files: the texts that several verbs exchange with the scripts. Their grammar stands in the headers
// of lua/*.lua.
import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRequest,
  Fence,
  Granted,
  Mismatch,
  Queued,
  RenewAnswer,
} from "../../core/engine.js";
import { parseOwner } from "../../core/inspect.js";
import { waiterLeaseMs } from "../../core/limits.js";

/** The last claim that was written out, and how: a quorum sends the same one to all its members. */
const last = { request: null as ClaimRequest | null, idleMs: null as number | null, text: "" };

/** A claim's request up to its second line, as lua/claim.lua describes it. */
export function claimText(request: ClaimRequest, idleMs: number): string {
  if (request === last.request && idleMs === last.idleMs) return last.text;
  const { id, capacity, units, wait, leaseMs, exact, tokenAtLeast = 0, reserve } = request;
  const tokens = reserve ? `${tokenAtLeast}+${reserve}` : tokenAtLeast;
  last.text = `${leaseMs + idleMs} ${leaseMs} ${tokens} ${exact ? 1 : 0} ${capacity} ${units} ${wait ? 1 : 0} ${waiterLeaseMs(leaseMs)}\n${id}`;
  last.request = request;
  last.idleMs = idleMs;
  return last.text;
}

/** The rest of it: the channel of the client, the owner as text, and the data. */
export function claimRest(channelAndOwner: string, data: string | undefined): string {
  return data === undefined ? channelAndOwner : `${channelAndOwner}\n${data}`;
}

function holderOf(text: string): Pick<Queued, "holder"> {
  return text === "" ? {} : { holder: parseOwner(text) };
}

/** "token floor [live]" */
export function fenceOf(token: string | undefined, floor: string | undefined, live: string | undefined): Fence {
  const fence = { token: Number(token), floor: Number(floor) };
  return live === undefined ? fence : { ...fence, live: live.split(",").map(Number) };
}

function unexpected(text: string): Error {
  return new Error(`the script answered "${text.slice(0, 80)}", which means nothing here`);
}

/** By positions: every grant pays for this, and a list of texts costs more than what is in it. `Number` ignores the space behind. */
function parseGranted(text: string): Granted {
  const tokenAt = text.indexOf(" ", "granted ".length) + 1;
  const floorAt = text.indexOf(" ", tokenAt) + 1;
  if (tokenAt === 0 || floorAt === 0) throw unexpected(text);
  const liveAt = text.indexOf(" ", floorAt) + 1;
  const leftMs = Number(text.slice("granted ".length, tokenAt));
  const token = Number(text.slice(tokenAt, floorAt));
  if (liveAt === 0) return { kind: "granted", leftMs, token, floor: Number(text.slice(floorAt)) };
  const live = text.slice(liveAt).split(",").map(Number);
  return { kind: "granted", leftMs, token, floor: Number(text.slice(floorAt, liveAt)), live };
}

export function parseRenewAnswer(text: string): Exclude<RenewAnswer, { kind: "unknown" }> {
  if (text.startsWith("granted ")) return parseGranted(text);
  if (text.startsWith("queued ")) {
    const [, token, nextMs] = text.split(" ", 3);
    // JSON contains no tab: the first one ends it.
    const [holder = "", ahead] = text.slice(`queued ${token} ${nextMs} `.length).split("\t");
    return {
      kind: "queued",
      token: Number(token),
      nextMs: nextMs === "-" ? null : Number(nextMs),
      ...(ahead === undefined ? {} : { ahead }),
      ...holderOf(holder),
    };
  }
  if (text === "gone") return { kind: "gone" };
  if (text === "revoked") return { kind: "gone", revoked: true };
  throw unexpected(text);
}

export function parseClaimAnswer(text: string): ClaimAnswer {
  if (text.startsWith("busy ")) {
    const [, nextMs] = text.split(" ", 2);
    return { kind: "busy", nextMs: Number(nextMs), ...holderOf(text.slice(`busy ${nextMs} `.length)) };
  }
  return text.startsWith("mismatch ") ? mismatchOf(text) : parseRenewAnswer(text);
}

export function parseCapacityAnswer(text: string): CapacityAnswer {
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
