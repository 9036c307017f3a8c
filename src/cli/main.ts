#!/usr/bin/env node
import { readFileSync } from "node:fs";

const [word = "--help", ...args] = process.argv.slice(2);
if (word === "--version" || word === "-V") {
  // Whoever asks for the version waits for nothing else.
  const file = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  process.stdout.write(`${(JSON.parse(file) as { version: string }).version}\n`);
} else {
  const { dispatch } = await import("./dispatch.js");
  await dispatch(word, args);
}
