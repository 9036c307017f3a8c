import { expect, test } from "vitest";
import { parse } from "../../src/cli/command.js";
import { jsonText } from "../../src/cli/printable.js";
import { run } from "../../src/cli/run.js";
import { hideSecrets, keepSecret } from "../../src/cli/secrets.js";

test("behind a name, every -- after the first belongs to the command", () => {
  expect(parse(run, ["a", "--", "git", "--", "x"])).toMatchObject({ words: ["a"], rest: ["git", "--", "x"] });
  expect(parse(run, ["--", "-a", "--", "git", "--", "x"])).toMatchObject({ words: ["-a"], rest: ["git", "--", "x"] });
});

test("a password is hidden in every form in which a driver may show it: decoded, encoded, or a part of it", () => {
  keepSecret("redis://u:open%40sesame@host");
  keepSecret("redis://u:first1/second2@host");
  expect(hideSecrets("open@sesame, open%40sesame")).toBe("***, ***");
  expect(hideSecrets("bad port first1, no database second2")).toBe("bad port ***, no database ***");
});

test("a user who is named like the store is no secret, and no message loses the store's name", () => {
  keepSecret("postgresql://postgres@host/db");
  expect(hideSecrets("postgres did not answer")).toBe("postgres did not answer");
  keepSecret("redis://a-token@host");
  expect(hideSecrets("redis refused a-token")).toBe("redis refused ***");
});

test("JSON for a terminal says the same as JSON", () => {
  const value = { name: "a\u{e0001}b\u202e\u0085c🔒" };
  expect(JSON.parse(jsonText(value))).toEqual(value);
  expect(jsonText(value)).not.toMatch(/[\p{Cc}\p{Cf}]/u);
});
