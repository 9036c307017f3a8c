// What a request costs with each middleware, beside the bare handler of the same server: express, fastify and hono on node:http, locks on the memory
// engine, one client that asks one request after another over a connection that stays open. The client is in the same process, and processor time is
// counted: what else the machine does is not.
//
//   npm run bench -- web [rounds] [requests]
import { randomUUID } from "node:crypto";
import { Agent, request } from "node:http";
import { memoryEngine } from "../dist/engines/memory/index.js";
import { connect } from "../dist/index.js";
import { install } from "../tools/web/install.mjs";
import { interleave, median, ratio, table } from "./lib/measure.mjs";

install();
const { FRAMEWORKS, serve } = await import("../tools/web/servers.mjs");
const [rounds = 15, requests = 300] = process.argv.slice(2).map(Number);

const agent = new Agent({ keepAlive: true, maxSockets: 1 });

function post(url, headers) {
  return new Promise((resolve, reject) => {
    const sent = request(url, { agent, method: "POST", headers }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`${url}: ${response.statusCode}`));
      response.resume().on("end", resolve);
    });
    sent.on("error", reject).end();
  });
}

/** Requests, one after another; µs of processor time for each. */
const asks =
  (url, headers = () => ({})) =>
  async () => {
    const start = process.cpuUsage();
    for (let n = 0; n < requests; n += 1) await post(url, headers());
    const { user, system } = process.cpuUsage(start);
    return (user + system) / requests;
  };

const locks = await connect(memoryEngine());
const servers = [];
const measures = {};
for (const framework of FRAMEWORKS) {
  const entry = await import(`../dist/web/${framework.replace(/\d/, "")}.js`);
  const idempotency = { answers: entry.memoryAnswers(), scope: () => "one user" };
  const server = await serve(framework, entry, { locks, idempotency, handle: async () => ({ body: "done" }) });
  servers.push(server);
  const { url } = server;
  measures[`${framework}, bare`] = asks(`${url}/bare`);
  measures[`${framework}, lock`] = asks(`${url}/lock/1`);
  measures[`${framework}, key, first`] = asks(`${url}/pay`, () => ({ "Idempotency-Key": randomUUID() }));
  await post(`${url}/pay`, { "Idempotency-Key": "known" });
  measures[`${framework}, key, again`] = asks(`${url}/pay`, () => ({ "Idempotency-Key": "known" }));
}
const figures = await interleave(measures, rounds);
table(
  `a request and its client, ${rounds} interleaved rounds of ${requests}, medians`,
  ["server and middleware", "processor time", "to bare", "cost of it"],
  Object.entries(figures).map(([name, all]) => {
    const bare = figures[name.replace(/,.*/, ", bare")];
    return [
      name,
      `${median(all).toFixed(0)} µs`,
      `${ratio(all, bare).toFixed(2)} ×`,
      `${(median(all) - median(bare)).toFixed(0)} µs`,
    ];
  }),
);
for (const server of servers) await server.close();
agent.destroy();
await locks.close();
