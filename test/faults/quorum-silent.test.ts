import { expect, test } from "vitest";
import { pause, until } from "../servers/process.js";
import { command } from "../servers/redis.js";
import { at, locksOn, startFive, TEST_MS, wiresTo } from "./quorum-rig.js";

// That the connection is replaced is the Redis engine's work; that its member counts again is the quorum's.
test("a member whose connections went silent votes again, and both is told", { timeout: TEST_MS }, async () => {
  const servers = (await startFive()).slice(0, 3);
  const wires = await wiresTo(servers);
  const locks = await locksOn(wires, { callTimeoutMs: 1000 });
  const warnings: string[] = [];
  locks.on("warning", ({ message }) => warnings.push(message));
  await (await locks.mutex("before").acquire({ waitMs: 20_000 })).release();
  const { port } = at(servers, 0);
  at(wires, 0).silence();
  // So many that it is away before its connections are given up: with one after the other it may be back before its third failure.
  const asked = ["one", "two", "three"].map((name) => locks.mutex(name).acquire({ waitMs: 20_000 }));
  await Promise.all((await Promise.all(asked)).map((hold) => hold.release()));
  let turns = 0;
  const votes = async (): Promise<boolean> => {
    turns += 1;
    const name = `turn ${turns}`;
    const hold = await locks.mutex(name).acquire({ waitMs: 20_000 });
    // The two others were enough: its vote may be on its way.
    await pause(50);
    const voted = (await command(port, `EXISTS "holdfast:lock:${name}"`)).includes(":1");
    await hold.release();
    return voted;
  };
  await until("it votes", votes, 60_000);
  const said = (text: string): number => warnings.filter((message) => message.includes(text)).length;
  expect(said(`quorum member 127.0.0.1:${at(wires, 0).port} is away`)).toBe(1);
  await until("it is told", () => said(`quorum member 127.0.0.1:${at(wires, 0).port} answers again`) === 1);
  // And now it is needed.
  await at(servers, 1).running.end();
  await (await locks.mutex("needed").acquire({ waitMs: 30_000 })).release();
});
