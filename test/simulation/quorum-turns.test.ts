import { test } from "vitest";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import { TURNS } from "./quorum-turns.js";

test.each(Object.entries(TURNS))("%s", { timeout: 120_000 }, async (_name, run) => run(quorumEngine));
