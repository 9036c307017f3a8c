import type { ClaimView, NameView } from "../wire.js";
import { h } from "./dom.js";

/** The capacity of a read-write lock, of which a writer takes all. */
const READERS_MAX = 1_048_576;

export type Kind = "mutex" | "read-write" | "semaphore";

export function kindOf({ capacity }: NameView): Kind {
  if (capacity === 1) return "mutex";
  return capacity === READERS_MAX ? "read-write" : "semaphore";
}

export function kindText(view: NameView): string {
  const kind = kindOf(view);
  return kind === "semaphore" ? `semaphore of ${view.capacity}` : kind;
}

export function unitsText(view: NameView, units: number): string {
  if (kindOf(view) === "read-write") return units === READERS_MAX ? "write" : "read";
  return String(units);
}

/** What is in use of what there is. */
export function useText(view: NameView): string {
  const kind = kindOf(view);
  if (kind === "mutex") return view.used > 0 ? "held" : "free";
  if (kind === "semaphore") return `${view.used} of ${view.capacity} permits in use`;
  if (view.used >= READERS_MAX) return "one writer";
  return `${view.holderCount} ${view.holderCount === 1 ? "reader" : "readers"}`;
}

/** How long, in the two largest units. */
export function ageText(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

export const sinceText = ({ since, atLeast }: ClaimView, now: number): string =>
  `${atLeast ? "≥ " : ""}${ageText(now - since)}`;

/** What cannot be seen, or turns text around, is shown by its number. */
export function visible(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

/** Names and labels: in an element of their own, so that their direction turns nothing else around. */
export const bdi = (text: string): HTMLElement => h("bdi", {}, visible(text));

/** `label (host:pid)`. */
export function ownerText({ label, host, pid }: Pick<ClaimView, "label" | "host" | "pid">): string {
  const place = `${host}:${pid}`;
  return visible(label === undefined || label === "" ? place : `${label} (${place})`);
}

export const shortOwner = ({ label, host, pid }: Pick<ClaimView, "label" | "host" | "pid">): string =>
  visible(label === undefined || label === "" ? `${host}:${pid}` : label);

export function shortened(text: string, most: number): string {
  const characters = Array.from(text);
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join("")}…`;
}

export const lockHref = (name: string): string => `#lock/${encodeURIComponent(name)}`;
