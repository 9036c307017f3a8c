import { given } from "./words.js";

const words = given();
// Only now: what follows loads everything, and a mistake in the words is told at once.
const { play } = await import("./play.js");
process.exit(await play(words));
