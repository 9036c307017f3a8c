import * as fc from "fast-check";
import { expect, test } from "vitest";
import { isOwner, ownerText, parseOwner } from "../../src/core/inspect.js";

const PLAIN = { client: "c", host: "h", pid: 7 };
const LABELLED = { ...PLAIN, label: "billing" };

test("an owner is read as it was written, with a label and without", () => {
  for (const owner of [PLAIN, LABELLED]) expect(parseOwner(JSON.stringify(owner))).toEqual(owner);
  expect([PLAIN, LABELLED].map(ownerText)).toEqual(["h:7", "billing (h:7)"]);
});

test("what another program wrote in its place is an owner that nothing else is known of, and no error", () => {
  const others = [null, true, 7, "text", [], {}, { ...LABELLED, label: 7 }, { ...PLAIN, client: 7 }];
  for (const field of ["client", "host", "pid"] as const) {
    others.push({ ...PLAIN, [field]: undefined }, { ...PLAIN, [field]: null }, { ...PLAIN, [field]: {} });
  }
  others.push({ ...PLAIN, pid: "7" }, { ...PLAIN, host: 7 });
  const texts = [...others.map((value) => JSON.stringify(value)), "", "{", "not JSON", '{"client":"c"'];
  for (const text of texts) {
    expect(parseOwner(text), text).toEqual({ client: text, host: "unknown", pid: 0 });
  }
  expect(isOwner(undefined)).toBe(false);
});

test("whatever is written, an owner is read that can be shown", () => {
  const property = fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
    const owner = parseOwner(text);
    expect(isOwner(owner)).toBe(true);
    expect(ownerText(owner)).toContain(":");
  });
  fc.assert(property, { seed: 3 });
});
