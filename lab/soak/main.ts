import { readArguments } from "./arguments.js";

const args = readArguments();
// Only now: what follows loads everything, and a mistake in the arguments is reported at once.
const { run } = await import("./run.js");
process.exit(await run(args));
