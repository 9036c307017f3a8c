// One of three processes gives out numbers. It is killed, the next one retires: no number may be given out twice.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { doubles, linesOf, until } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";

const title = "leader: one of three processes gives out numbers; it is killed, the next one retires";

await example(import.meta.url, { title }, async ({ fleet, folder }) => {
  const ledger = join(folder, "ledger");
  const members = await fleet(3, { ledger });
  const given = () => linesOf(ledger).map((line) => line.split(" "));

  /** Waits for ten numbers more, by others than those who led before; answers who gave the last one. */
  const former = new Set();
  const nextLeader = async () => {
    const from = given().length;
    const byOthers = () =>
      given()
        .slice(from)
        .filter(([, who]) => !former.has(who));
    await until("ten more numbers", () => byOthers().length >= 10);
    const [number, who] = byOthers().at(-1);
    say("", `number ${number} was given out by ${who}`);
    former.add(who);
    return members.find(({ name }) => name === who);
  };

  for (const member of members) await member.ask("campaign");
  await (await nextLeader()).kill();
  const second = await nextLeader();
  await second.ask("retire");
  say(second.name, "retired");
  await nextLeader();

  const numbers = given().map(([number]) => Number(number));
  return doubles(numbers).map((number) => `number ${number} was given out more than once`);
});
