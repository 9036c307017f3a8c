// The live view in an Express program with a log-in: one user may look, the other may also take locks away. Ends by Ctrl-C.
//
//   npm run example -- live-view [--url URL] [--port PORT]
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import express from "express";
import { connect } from "holdfast";
import { forNode, liveView } from "holdfast/live";
import { memoryEngine, memoryStore } from "holdfast/memory";

const USAGE = "usage: npm run example -- live-view [--url URL] [--port PORT]";

function options() {
  try {
    const text = { type: "string" };
    return parseArgs({ options: { url: text, port: text, help: { type: "boolean", short: "h" } } }).values;
  } catch (error) {
    return { problem: error.message };
  }
}
const { url, port = "0", help, problem } = options();
if (help || problem !== undefined) {
  console.error(problem === undefined ? USAGE : `${problem}\n\n${USAGE}`);
  process.exit(problem === undefined ? 0 : 2);
}
const memory = memoryStore();
const open = (label) => connect(url ?? memoryEngine(memory), { label });

/** Your users, with hashed passwords, are in your database. These are made anew at each start, and printed. */
const USERS = new Map([
  ["viewer", { password: randomBytes(9).toString("base64url"), permission: "read" }],
  ["operator", { password: randomBytes(9).toString("base64url"), permission: "release" }],
]);
const SECRET = randomBytes(32);
const sign = (text) => createHmac("sha256", SECRET).update(text).digest("base64url");
const same = (one, two) => one.length === two.length && timingSafeEqual(Buffer.from(one), Buffer.from(two));

/** Who sent a request, by the cookie of this program's log-in; undefined: nobody whom it knows. */
function userOf(cookies) {
  const [, user = "", signature = ""] = /(?:^|; )session=(\w+)\.([\w-]+)/.exec(cookies ?? "") ?? [];
  return same(signature, sign(user)) ? USERS.get(user) : undefined;
}

const locks = await open("express");
const view = liveView(locks, {
  // Asked at every request of the page. The view itself knows no users and sets no cookies.
  authorize: (request) => userOf(request.headers.get("cookie"))?.permission,
});
// Who took what from whom belongs into your log.
locks.on("forceReleased", ({ name, token, holder }) =>
  console.log(`taken away: ${name}, token ${token}, from ${holder.label}`),
);

const app = express();
const loginPage = (message) => `<!doctype html><html lang="en"><title>Log in</title><h1>Log in</h1><p>${message}</p>
<form method="post" action="/login"><label>User <input name="user"></label> <label>Password <input name="password" type="password"></label>
<button>Log in</button></form></html>`;
app.get("/login", (_, response) => response.send(loginPage("")));
app.post("/login", express.urlencoded({ extended: false }), (request, response) => {
  const { user = "", password = "" } = request.body ?? {};
  const known = USERS.get(user);
  if (known === undefined || !same(String(password), known.password))
    return response.status(401).send(loginPage("That is wrong."));
  response.cookie("session", `${user}.${sign(user)}`, { httpOnly: true, sameSite: "strict" });
  return response.redirect(303, "/admin/locks/");
});
// Whoever is not logged in is sent to where that is done; the view would only refuse.
app.use("/admin/locks", (request, response, next) => {
  if (userOf(request.headers.cookie) !== undefined || request.method !== "GET") next();
  else response.redirect(303, "/login");
});
app.use("/admin/locks", forNode(view));

const server = app.listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/login`);
  for (const [user, { password, permission }] of USERS) console.log(`${user} ${password} (may ${permission})`);
});

// Something to look at: four workers that take turns at one lock, and share two permits.
const stop = new AbortController();
const work = ["ann", "ben", "cy", "dee"].map(async (label) => {
  const worker = await open(label);
  while (!stop.signal.aborted) {
    await worker
      .mutex("example:stock")
      .using((hold) => sleep(1_500, undefined, { signal: hold.signal }))
      .catch(() => {});
    await worker
      .semaphore("example:permits", 2)
      .using(() => sleep(2_000))
      .catch(() => {});
  }
  await worker.close();
});

async function end() {
  stop.abort();
  view.close();
  server.close();
  server.closeAllConnections();
  await Promise.all(work);
  await locks.close();
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => void end());
