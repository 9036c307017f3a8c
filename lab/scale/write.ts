// Writes docs/scale.md and its pictures from the last results: `npm run bench -- scale --page`.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT, write } from "../lib/results.js";
import { scalePagesOf } from "./page.js";
import type { ScaleResults } from "./results.js";

const results = JSON.parse(readFileSync(join(ROOT, "lab/results/scale.json"), "utf8")) as ScaleResults;
for (const [path, content] of Object.entries(scalePagesOf(results))) write(path, content);
