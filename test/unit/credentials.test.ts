import { expect, test } from "vitest";
import { EngineRefusedError, InvalidOptionError } from "../../src/core/errors.js";
import { askCredentials, type CredentialsFunction } from "../../src/engine-kit/credentials.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { never, watch } from "./rig.js";

const NOBODY = { username: undefined, password: undefined };

function asking(credentials: unknown, url: Parameters<typeof askCredentials>[2] = NOBODY) {
  const clock = new FakeClock();
  const ask = askCredentials("redis", credentials as CredentialsFunction, url, { clock, callTimeoutMs: 4000 });
  return { clock, ask: ask ?? never };
}

test("it is asked anew each time, and leaves no timer behind", async () => {
  let asked = 0;
  const { clock, ask } = asking(async () => ({ username: "u", password: `p${(asked += 1)}` }));
  expect([await ask(), await ask()]).toEqual([
    { username: "u", password: "p1" },
    { username: "u", password: "p2" },
  ]);
  expect(clock.pending).toBe(0);
});

test("the user of the URL counts where the function names none", async () => {
  const url = { username: "of-the-url", password: undefined };
  expect(await asking(() => ({ password: "p" }), url).ask()).toEqual({ username: "of-the-url", password: "p" });
  expect(await asking(() => ({ username: "u", password: "p" }), url).ask()).toMatchObject({ username: "u" });
  expect(await asking(() => ({ password: "p" })).ask()).toEqual({ password: "p" });
});

test("two passwords, or what is no function, are refused before anything is opened", () => {
  const url = { username: "u", password: "secret" };
  expect(() => asking(() => ({ password: "p" }), url)).toThrow(InvalidOptionError);
  expect(() => asking(() => ({ password: "p" }), url)).not.toThrow(/secret/);
  expect(() => asking("secret")).toThrow(InvalidOptionError);
  expect(() => asking("secret")).not.toThrow(/secret/);
  expect(askCredentials("redis", undefined, url, { clock: new FakeClock(), callTimeoutMs: 1 })).toBeUndefined();
});

test("a function that throws passes: it is asked again by whoever connects again", async () => {
  const failing = asking(() => {
    throw new Error("the vault is sealed");
  });
  await expect(failing.ask()).rejects.toThrow("the function credentials failed: the vault is sealed");
  await expect(failing.ask()).rejects.not.toBeInstanceOf(EngineRefusedError);
  await expect(asking(() => Promise.reject(new Error("away"))).ask()).rejects.toThrow("failed: away");
  expect(failing.clock.pending).toBe(0);
});

test("a function that hangs has half of the time of a call", async () => {
  const { clock, ask } = asking(() => never());
  const asked = watch(ask());
  await clock.advance(1999);
  expect(asked.state).toBe("pending");
  await clock.advance(1);
  expect(String(asked.error)).toContain("the function credentials gave no answer within 2000 ms");
});

test.each([
  undefined,
  null,
  "opensesame",
  7,
  [],
  {},
  { password: "" },
  { password: 7 },
  { username: "", password: "opensesame" },
  { username: ["opensesame"], password: "opensesame" },
])("the answer %j is refused, with what to do and without showing it", async (answer) => {
  const error = await asking(async () => answer)
    .ask()
    .catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(EngineRefusedError);
  expect(String(error)).toMatch(/gave no password.*answer with \{ username, password \}/);
  expect(String(error)).not.toContain("opensesame");
});
