// node --import ./lab/lib/typescript.mjs program.ts: lets this Node.js, which knows no types, run our TypeScript.
import { register } from "node:module";

register("./typescript-hooks.mjs", import.meta.url);
