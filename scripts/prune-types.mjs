// Removes from dist the declarations that no exported module leads to: nobody's compiler reads them.
import { readdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const ROOT = join(import.meta.dirname, "..");
const { exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

const reached = new Set();
const left = Object.values(exports).flatMap(({ types }) => (types === undefined ? [] : [resolve(ROOT, types)]));
for (let file = left.pop(); file !== undefined; file = left.pop()) {
  if (reached.has(file)) continue;
  reached.add(file);
  for (const [, path] of readFileSync(file, "utf8").matchAll(/(?:from|import\()\s*"(\.[^"]+)\.js"/g))
    left.push(resolve(dirname(file), `${path}.d.ts`));
}
for (const name of readdirSync(join(ROOT, "dist"), { recursive: true, encoding: "utf8" })) {
  const path = join(ROOT, "dist", name);
  if (name.endsWith(".d.ts") && !reached.has(path)) rmSync(path);
}
