// Requests of the same users reach three web servers at the same time; one server dies over a request. What was
// confirmed must be in the session, once.
import { join } from "node:path";
import { example } from "../lib/example.mjs";
import { doubles, readJson } from "../lib/files.mjs";
import { say } from "../lib/screen.mjs";

const title = "user-session: each user's requests reach three web servers at once; one server is killed";
const [USERS, REQUESTS] = [["ida", "jon", "kim"], 12];

await example(import.meta.url, { title }, async ({ fleet, folder }) => {
  const [ann, bob, cy] = await fleet(3);

  /** The load balancer: in turn, and what was not answered goes to the next server. */
  let again = 0;
  const request = (n, details) =>
    [ann, bob, cy][n % 3].ask("addToCart", details).catch(() => {
      again += 1;
      return cy.ask("addToCart", details);
    });
  const dying = bob.dies("addToCart", { user: "ida", item: 99, fail: true });
  const all = USERS.flatMap((user) => Array.from({ length: REQUESTS }, (_, n) => request(n, { user, item: n + 1 })));
  await Promise.all([dying, ...all]);
  say("", `${all.length} requests were confirmed, ${again} of them at the second server`);

  return USERS.flatMap((user) => {
    const { cart } = readJson(join(folder, `${user}.json`));
    const lost = Array.from({ length: REQUESTS }, (_, n) => n + 1).filter((item) => !cart.includes(item));
    return [
      ...(lost.length > 0 ? [`${user}'s session lost the items ${lost.join(", ")}`] : []),
      ...doubles(cart).map((item) => `${user} has item ${item} twice`),
    ];
  });
});
