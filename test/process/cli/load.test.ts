import { writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { PLACES } from "../../servers/places.js";
import { World } from "./rig.js";

/** Where there is a server, half as many: what is shown is the same, and their starting takes most of the time. */
const PROCESSES: readonly [kind: string, count: number][] = [
  ["sqlite", 200],
  ["redis", 100],
  ["postgres", 100],
];
const ADD_ONE = "n=$(cat count); echo $((n + 1)) > count";

test.each(PROCESSES)(
  "on %s, %i processes at once each add one to a file under one lock",
  { timeout: 400_000 },
  async (kind, count) => {
    const place = await PLACES[kind]?.();
    if (place === undefined) throw new Error(kind);
    try {
      const world = new World(place.url);
      writeFileSync(world.path("count"), "0\n");
      const from = Date.now();
      const running = Array.from({ length: count }, () => world.start(["run", "count", "-c", ADD_ONE]));
      const results = await Promise.all(running.map((one) => one.ended));
      expect(results.filter(({ code }) => code !== 0)).toEqual([]);
      expect(world.read("count")).toBe(`${count}\n`);
      console.log(`${kind}: ${count} processes in ${((Date.now() - from) / 1000).toFixed(1)} s`);
    } finally {
      await place.stop();
    }
  },
);

test("the same without a lock loses some, so that the test above can fail", { timeout: 240_000 }, async () => {
  const world = new World();
  writeFileSync(world.path("count"), "0\n");
  const slower = "n=$(cat count); sleep 0.1; echo $((n + 1)) > count";
  const running = Array.from({ length: 20 }, (_, n) => world.start(["run", `other ${n}`, "-c", slower]));
  for (const one of running) expect(await one.ended).toMatchObject({ code: 0 });
  expect(Number(world.read("count"))).toBeLessThan(20);
});
