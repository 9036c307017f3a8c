import { describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineRefusedError } from "../../src/core/errors.js";
import { until } from "../servers/process.js";
import { command } from "../servers/redis.js";
import { locksOn, ownServer } from "./redis-rig.js";

const KEY = "holdfast:layout-version";

async function reasonOf(opening: Promise<unknown>): Promise<string> {
  const error: unknown = await opening.catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(EngineRefusedError);
  return (error as Error).message;
}

describe("redis", () => {
  test("a server that comes up empty gets the version again from whoever reconnects", async () => {
    const { port, url } = await ownServer();
    const locks = await locksOn(url);
    expect(await command(port, `GET ${KEY}`)).toContain("2-2");
    await command(port, "FLUSHALL");
    await command(port, "CLIENT KILL TYPE pubsub");
    await until("it is written again", async () => (await command(port, `GET ${KEY}`)).includes("2-2"));
    await locks.mutex("m").using(() => {});
  });

  test("a program that was away while the others went on is refused when it comes back, and says so", async () => {
    const { port, url } = await ownServer();
    const locks = await locksOn(url);
    const hold = await locks.mutex("held").acquire({ leaseMs: 1000 });
    const warned = new Promise<string>((resolve) => void locks.on("warning", ({ message }) => resolve(message)));
    await command(port, `SET ${KEY} 3-4`);
    await command(port, "CLIENT KILL TYPE pubsub");
    const says =
      /under the prefix "holdfast:" is for programs that speak layout version 3 or 4, .*too old, speaks 2\. Update Holdfast here/;
    expect(await warned).toMatch(says);
    expect(await reasonOf(locks.mutex("m").acquire())).toMatch(says);
    // Its renewals are refused too: it is told, and nothing of it is written.
    await until("the hold is lost", () => hold.state === "lost");
    expect(await command(port, `GET ${KEY}`)).toContain("3-4");
  });

  test("a version that is none is refused, and so is another program's key", async () => {
    const { port, url } = await ownServer();
    await command(port, `SET ${KEY} invoices`);
    expect(await reasonOf(connect(url))).toMatch(
      /is "invoices".*Another program uses it; give this one a prefix of its own/,
    );
    await command(port, `DEL ${KEY}`);
    await command(port, `LPUSH ${KEY} invoices`);
    expect(await reasonOf(connect(url))).toMatch(/WRONGTYPE.*another prefix/);
  });

  test("whoever may use the locks may write the version; without the right it is said what to grant", async () => {
    const { port, url } = await ownServer();
    const as = (user: string): string => url.replace("redis://", `redis://${user}:p@`);
    const rights = "+evalsha +eval +get +set +info +subscribe +unsubscribe +ping +time +hello +select";
    await command(port, `ACL SETUSER few on >p ~holdfast:lock:* &* ${rights}`);
    expect(await reasonOf(connect(as("few")))).toMatch(/Give the user .*docs\/rights\/redis\.acl/);
    await command(port, `ACL SETUSER enough on >p ~holdfast:* &* ${rights}`);
    const locks = await connect(as("enough"));
    onTestFinished(() => locks.close());
    await locks.mutex("m").using(() => {});
  });

  test("layouts of other programs have no version", async () => {
    const { port, url } = await ownServer();
    const locks = await locksOn(url, { layout: "plain" });
    await locks.mutex("m").using(() => {});
    expect(await command(port, "EXISTS " + KEY)).toContain("0");
  });
});
