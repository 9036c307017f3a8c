import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { STYLE } from "./style.js";

/** The page's modules, compiled from `page/` into files of the same names. The browser loads them as they are. */
export const SCRIPTS = [
  "main.js",
  "connection.js",
  "dialog.js",
  "dom.js",
  "graph.js",
  "layout.js",
  "lock.js",
  "model.js",
  "names.js",
  "store.js",
  "text.js",
  "timeline.js",
] as const;

export type Asset = { readonly type: string; readonly plain: Uint8Array; readonly gzip: Uint8Array };

const kept = new Map<string, Asset>();

/** A file of the page, or undefined. Read on first use: a program that only mounts the view pays nothing. */
export function assetOf(name: string): Asset | undefined {
  const known = kept.get(name);
  if (known !== undefined) return known;
  const made = make(name);
  if (made !== undefined) kept.set(name, made);
  return made;
}

function make(name: string): Asset | undefined {
  if (name === "style.css") return asset("text/css", Buffer.from(STYLE));
  if (!SCRIPTS.some((script) => script === name)) return undefined;
  return asset("text/javascript", readFileSync(new URL(`page/${name}`, import.meta.url)));
}

const asset = (type: string, plain: Buffer): Asset => ({ type, plain, gzip: gzipSync(plain, { level: 9 }) });
