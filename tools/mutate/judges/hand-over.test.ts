import { test } from "vitest";
import * as connecting from "../../../src/connect.js";
import * as memory from "../../../src/engines/memory/index.js";
import * as clocks from "../../../src/testing/fake-clock.js";
import * as interceptors from "../../../src/testing/intercept.js";
import * as chances from "../../../src/testing/seeded-chance.js";
import { HAND_OVER_CASES, type Library } from "../../../test/unit/local-hand-over-cases.js";

/** The cases of test/unit/local-hand-over.test.ts without its broken copies, which are made of sources that Stryker has rewritten. */
const library: Library = { ...connecting, ...memory, ...clocks, ...interceptors, ...chances };

test.each(HAND_OVER_CASES.map((one) => [one.name, one] as const))("%s", (_name, one) => one.run(library));
