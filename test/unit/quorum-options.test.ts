import { describe, expect, test } from "vitest";
import type { Timer } from "../../src/core/clock.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { LEASE_MAX_MS, TIMER_MAX_MS } from "../../src/core/limits.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { type QuorumMember, type QuorumOptions, quorumEngine } from "../../src/engines/quorum/index.js";
import { parseRedlockUrl } from "../../src/engines/quorum/url.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { intercept } from "../../src/testing/intercept.js";

const CLAIM = {
  units: 1,
  capacity: 1,
  leaseMs: LEASE_MAX_MS,
  wait: false,
  owner: { client: "c", host: "h", pid: 1 },
};
const members = (count: number): QuorumMember[] => Array.from({ length: count }, () => memoryEngine());
const opened = async (list: readonly QuorumMember[], options?: QuorumOptions): Promise<string> => {
  const engine = await quorumEngine(list, options);
  await engine[Symbol.asyncDispose]();
  return "opened";
};

describe("options of a quorum", () => {
  test.each([
    ["memberTimeoutMs", 1, LEASE_MAX_MS],
    ["driftRatio", 0, 0.5],
    ["driftMs", 0, 10_000],
    ["restartGuardMs", 0, LEASE_MAX_MS],
  ])("%s is a number from %d to %d", async (option, least, most) => {
    for (const value of [least, most]) expect(await opened(members(3), { [option]: value })).toBe("opened");
    for (const value of [least - 0.01, most + 0.01, Number.NaN, "1", null]) {
      const refused = opened(members(3), { [option]: value });
      await expect(refused, String(value)).rejects.toBeInstanceOf(InvalidOptionError);
      await expect(refused).rejects.toThrow(new RegExp(`${option}.*${least} to ${most}`));
    }
  });

  test("the longest memberTimeoutMs fits into a timer wherever it is used", async () => {
    class LongestTimer extends FakeClock {
      ms = 0;
      override after(ms: number, run: () => void): Timer {
        this.ms = Math.max(this.ms, ms);
        return super.after(ms, run);
      }
    }
    const clock = new LongestTimer();
    const hung = (): Promise<never> => new Promise(() => {});
    const stores = Array.from({ length: 3 }, () =>
      intercept(memoryEngine(memoryStore(clock)), { renew: hung, release: hung }),
    );
    const engine = await quorumEngine(stores, { clock, memberTimeoutMs: LEASE_MAX_MS });
    const claims = Array.from({ length: 20 }, (_, n) => ({ ...CLAIM, name: `${n}`, id: `claim-${n}` }));
    for (const claim of claims) expect((await engine.claim(claim)).kind).toBe("granted");
    void engine.renew(claims);
    const [first] = claims;
    if (first !== undefined) engine.release(first).catch(() => {});
    const closing = engine[Symbol.asyncDispose]();
    await clock.advance(3 * LEASE_MAX_MS);
    await closing;
    expect(clock.ms).toBeGreaterThan(LEASE_MAX_MS);
    expect(clock.ms).toBeLessThanOrEqual(TIMER_MAX_MS);
  });

  test("an option that there is not is refused by name", async () => {
    await expect(opened(members(3), { drift: 1 } as QuorumOptions)).rejects.toThrow(/drift/);
  });
});

describe("members of a quorum", () => {
  test("two to ninety-nine of them; one is told what to do instead", async () => {
    for (const count of [2, 99]) expect(await opened(members(count))).toBe("opened");
    await expect(opened(members(1))).rejects.toThrow(/one member is no quorum: use its engine directly/);
    await expect(opened([])).rejects.toThrow(/members.* 0 of them.*2 to 99/);
    await expect(opened(members(100))).rejects.toThrow(/100 of them/);
    await expect(opened(memoryEngine() as never)).rejects.toThrow(/members.*a list of 2 to 99 engines/);
  });

  test("what is no member is refused with its place in the list", async () => {
    for (const wrong of [null, "redis://", {}, { name: "a" }, { name: "a", open: 1 }]) {
      await expect(opened([memoryEngine(), memoryEngine(), wrong as never])).rejects.toThrow(
        /members\[2\].*an engine, \{ name, engine \} or \{ name, open \}/,
      );
    }
  });
});

describe("a redlock: URL", () => {
  test.each([
    ["redlock://a", [["a", "redis://a"]]],
    [
      "redlock://a:1,b:2",
      [
        ["a:1", "redis://a:1"],
        ["b:2", "redis://b:2"],
      ],
    ],
    [
      "REDLOCK://user:pass@a:1,[::1]:2/3",
      [
        ["a:1", "redis://user:pass@a:1/3"],
        ["[::1]:2", "redis://user:pass@[::1]:2/3"],
      ],
    ],
    ["redlock://:pass@a/", [["a", "redis://:pass@a/"]]],
  ])("%s", (url, servers) => {
    expect(parseRedlockUrl(url).map(({ name, url: one }) => [name, one])).toEqual(servers);
  });

  test.each([
    "redlock://",
    "redlock://secret@",
    "redlock://secret@a,",
    "redlock://secret@,a",
    "redlock://secret@a,,b",
    "redlock://secret@a/b",
    "redlock://secret@a?b",
    "redlock://secret@a#b",
    "redlock:secret",
    "redis://secret@a",
    "xredlock://secret@a",
    "redlock://secret@a@b",
  ])("%s cannot be read, and the error does not show it", (url) => {
    let error: unknown;
    try {
      parseRedlockUrl(url);
    } catch (cause) {
      error = cause;
    }
    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(String(error)).toMatch(/url.*it cannot be read.*redlock:\/\/\[user:password@\]host\[:port\],host/);
    expect(String(error)).not.toContain("secret");
  });
});
