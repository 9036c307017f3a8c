import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { hideSecrets, keepSecret, withoutSecrets } from "../../../src/cli/secrets.js";
import { connect } from "../../../src/connect.js";
import { command, type RedisServer, startRedis } from "../../servers/redis.js";
import { World } from "./rig.js";

/** Found nowhere else on the machine. */
const SECRET = `s${randomBytes(12).toString("hex")}`;

let redis: RedisServer;
let url: string;
beforeAll(async () => {
  redis = await startRedis();
  await command(redis.port, `ACL SETUSER app on >${SECRET} ~* &* +@all`);
  url = redis.url.replace("//", `//app:${SECRET}@`);
});
afterAll(() => redis.running.stop());

/** Whoever can see processes can see these. */
function processesThatShow(secret: string): string[] {
  const lines = readdirSync("/proc").flatMap((pid) => {
    try {
      return /^\d+$/.test(pid) ? [readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")] : [];
    } catch {
      // It has ended.
      return [];
    }
  });
  return lines.filter((line) => line.includes(secret));
}

test("hold --url: no process that stays shows the password, nor does what it prints", async () => {
  const world = new World();
  const held = await world.holdfast("hold", "--url", url, "--json", "--pid", String(process.pid), "deploy");
  expect(held).toMatchObject({ code: 0, err: "" });
  const { holder } = JSON.parse(held.out) as { holder: number };
  try {
    expect(processesThatShow(SECRET)).toEqual([]);
    expect(held.out).not.toContain(SECRET);
    expect(readFileSync(`/proc/${holder}/cmdline`, "utf8")).toContain("holder.js");
  } finally {
    process.kill(holder, "SIGTERM");
  }
});

test.each([
  ["run", ["run", "--url", "URL", "a", "--"]],
  ["run --url=", ["run", "--url=URL", "a", "--"]],
  ["run, of two URLs,", ["run", "--url", "URL", "--url", "URL/1", "a", "--"]],
  ["elect", ["elect", "--url", "URL", "b", "--"]],
  ["once", ["once", "--url", "URL", "c", "--"]],
])(
  "%s: while the command runs, no process shows the password that was typed, and the command is not given it",
  async (_, args) => {
    const world = new World("sqlite:unused");
    const running = world.start([
      ...args.map((arg) => arg.replace("URL", url)),
      "sh",
      "-c",
      "env > env; echo on > started; while [ ! -e stop ]; do sleep 0.05; done",
    ]);
    await world.says("started");
    try {
      expect(processesThatShow(SECRET)).toEqual([]);
      expect(world.read("env")).toContain("HOLDFAST_TOKEN=");
      expect(world.read("env")).not.toContain(SECRET);
    } finally {
      await world.startIn(["touch", "stop"]).ended;
    }
    expect(await running.ended).toMatchObject({ code: 0, out: "", err: "" });
  },
);

/** Accounts and secret parameters as people write them, right and wrong. */
const WRITTEN: readonly [what: string, url: string, shown: string][] = [
  ["an account", "redis://user:opensesame@host:1/0", "redis://***@host:1/0"],
  ["a password alone", "redis://:opensesame@host", "redis://***@host"],
  ["no scheme", "user:opensesame@host/db", "***@host/db"],
  ["a scheme without slashes", "postgres:user:opensesame@host/db", "***@host/db"],
  ["neither scheme nor user", ":opensesame@host", "***@host"],
  ["a token instead of an account", "opensesame@host", "***@host"],
  ["an @ that is not escaped", "mysql://user:open@sesame@host/db", "mysql://***@host/db"],
  ["a / that is not escaped", "postgres://user:open/sesame@host/db", "postgres://***@host/db"],
  ["a ? and a # that are not escaped", "redis://user:open?ses#ame@host", "redis://***@host"],
  ["quotes and spaces in it", `redis://user:open"ses'ame x@host`, "redis://***@host"],
  ["several hosts with several accounts", "etcd://u:opensesame@one:1,v:opensesame2@two:2", "etcd://***@two:2"],
  [
    "parameters",
    "postgres://host/db?user=me&password=opensesame&sslpassword=opensesame&sslkey=/opensesame.pem&sslmode=require",
    "postgres://host/db?user=me&password=***&sslpassword=***&sslkey=***&sslmode=require",
  ],
  [
    "parameters whose names are escaped",
    "postgres://host/db?ssl%70assword=opensesame",
    "postgres://host/db?ssl%70assword=***",
  ],
  [
    "a Sentinel's",
    "redis+sentinel://host/main?sentinelUsername=me&sentinelPassword=opensesame",
    "redis+sentinel://host/main?sentinelUsername=me&sentinelPassword=***",
  ],
  ["a token", "https://host/?access_token=opensesame&x=1", "https://host/?access_token=***&x=1"],
  ["nothing secret", "redis://host:1/0?x=1", "redis://host:1/0?x=1"],
  ["a path with an @", "sqlite:/home/me@work/locks.db", "sqlite:/home/me@work/locks.db"],
];

test.each(WRITTEN)("a URL with %s is shown without what is secret", (_, written, shown) => {
  expect(withoutSecrets(written)).toBe(shown);
});

test.each(WRITTEN.filter(([what, written]) => written.includes("open") && what !== "a Sentinel's"))(
  "doctor, ls and run with %s in the URL print nothing that is secret",
  { timeout: 240_000 },
  async (_, written) => {
    const world = new World(written.replaceAll(/\b(host|one|two)\b/g, "127.0.0.1:1").replaceAll(":1:", ":"));
    const results = await Promise.all([
      world.holdfast("doctor"),
      world.holdfast("doctor", "--json"),
      world.holdfast("ls", "--json"),
      world.holdfast("run", "-n", "a", "--", "true"),
      world.holdfast("run", "-n", "--json", "--url", world.url, "a", "--", "true"),
    ]);
    for (const { out, err, code } of results) {
      expect(code).not.toBe(0);
      expect(`${out}${err}`).not.toMatch(/sesame|open[^ a-z]/);
    }
  },
);

test("a message shows no password where a URL has what a replacement would read as another, and shows how a URL is written", () => {
  keepSecret("app:abc@host/$&");
  expect(hideSecrets("no app:abc@host/$& here")).toBe("no ***@host/$& here");
  expect(hideSecrets("Allowed: redis://[user:password@]host[:port]")).toBe(
    "Allowed: redis://[user:password@]host[:port]",
  );
});

test("the library names members and schemes, never accounts, however a URL is written", async () => {
  const written = [
    "redis://user:open/sesame@127.0.0.1:1",
    "redis://user:open@sesame@127.0.0.1:1",
    "redis://127.0.0.1:1",
  ];
  const error: unknown = await connect(written, { callTimeoutMs: 500 }).catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(Error);
  expect(String(error)).not.toMatch(/sesame|open/);
  for (const one of ["user:opensesame@host", "opensesame:x@host", "opensesame@host:1"]) {
    const refused: unknown = await connect(one).catch((cause: unknown) => cause);
    expect(String(refused)).toMatch(/it has no scheme/);
    expect(String(refused)).not.toMatch(/opensesame|user/);
  }
});
