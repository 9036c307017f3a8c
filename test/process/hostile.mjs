// A program whose store answers wrongly, in every shape of `hostile-proxy.mjs`. It counts what would have killed it, what never
// settles, what grows and what is granted that somebody else holds. It is a process of its own, because a test runner listens to
// uncaught errors itself, and because a driver that loops for ever would take the runner with it.
// In: { driver, url, skip: [attacks left out], only?: [attacks], seed }. Out: one JSON line of findings.
// Time is the engine's own: it passes only after the wrong answer was given, as far as the time limit of a call, and no further.
import { appendFileSync } from "node:fs";
import { connect } from "../../dist/index.js";
import { FakeClock } from "../../dist/testing/index.js";
import { attacksOn, HostileProxy } from "./hostile-proxy.mjs";

const { driver, url, skip = [], only, seed = 1 } = JSON.parse(process.argv[2]);

const LIMIT_MS = 1000;
/** A call may be two or three requests, each with this limit, and pauses between them. */
const CALL_MS = 5 * LIMIT_MS;
/** Far more than any of it takes: only what hangs runs into it. */
const HANGS_AFTER_MS = 60_000;
/** Which answer of a round is spoiled; after these rounds, all of them. */
const PLACES = [0, 2, 5];
/** While every answer is wrong it goes on for half as many time limits. */
const AGAIN = 16;
const ALWAYS = Number.POSITIVE_INFINITY;
/** Far beyond what a client needs, far below what one connection, timer or listener a round comes to. */
const MORE_ALLOWED = 25;
const MEMORY_ALLOWED = 150e6;

const findings = {
  rounds: 0,
  hits: 0,
  connectionsMost: 0,
  crashes: [],
  hangs: [],
  grown: [],
  stolen: [],
  unrecovered: [],
  tokens: [],
};
let at = "start";
const note = (list, what) => list.push(`${at}: ${what}`);
const crashed = (error) =>
  note(findings.crashes, error instanceof Error ? error.stack.split("\n").slice(0, 4).join(" ") : String(error));
process.on("uncaughtException", crashed);
process.on("unhandledRejection", crashed);

const turn = () => new Promise((resolve) => setTimeout(resolve, 1));
const HUNG = Symbol("hung");

/** Whether it is settled within moments of the machine's own time. */
async function soon(promise, ms = 30) {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, ms, false)));
  return Promise.race([promise.then(() => true), late]).finally(() => clearTimeout(timer));
}

/** What becomes of a promise, whatever that is; HUNG when nothing does. */
function outcomeOf(promise) {
  let timer;
  const hung = new Promise((resolve) => (timer = setTimeout(resolve, HANGS_AFTER_MS, HUNG)));
  const settled = Promise.resolve(promise).then(
    (value) => ({ value }),
    (error) => ({ error }),
  );
  return Promise.race([settled, hung]).finally(() => clearTimeout(timer));
}

/** For what a good server answers: time passes only when nothing has come for a while. */
async function driven(clock, promise) {
  const outcome = outcomeOf(promise);
  while (!(await soon(outcome))) await clock.advance(LIMIT_MS / 4);
  const { value, error } = await outcome;
  if (error !== undefined) throw error;
  return value;
}

/** A busy machine may be slower than the time limit. */
async function again(attempt) {
  for (const end = Date.now() + HANGS_AFTER_MS; ; ) {
    try {
      return await attempt();
    } catch (error) {
      if (Date.now() < end) continue;
      console.error(error);
      process.exit(1);
    }
  }
}

/** The wrong answer is given; then time passes up to the limit of a call, and all must settle without more of it. */
async function settles(clock, what, promise, hit) {
  const state = { over: false };
  const outcome = outcomeOf(promise).finally(() => (state.over = true));
  // What asks nothing of the server is not hit.
  await soon(Promise.race([hit, outcome]), 100);
  for (let passed = 0; passed < CALL_MS && !state.over; passed += 50) {
    await clock.advance(50);
    await turn();
  }
  const settled = await outcome;
  if (settled === HUNG) note(findings.hangs, what);
  return settled;
}

const PROTOCOL = { ioredis: "redis", "node-redis": "redis" }[driver] ?? driver;

async function open(address, options) {
  if (PROTOCOL === "redis") {
    const { openRedis } = await import("../../dist/engines/redis/index.js");
    const missing = Object.assign(new Error("Cannot find package 'ioredis'"), { code: "ERR_MODULE_NOT_FOUND" });
    const load = async (name) => {
      if (driver === "node-redis" && name === "ioredis") throw missing;
      return import(name);
    };
    const { callTimeoutMs, ...rest } = options;
    return openRedis(address, { ...rest, callTimeoutMs: callTimeoutMs }, load);
  }
  const { [`open${PROTOCOL[0].toUpperCase()}${PROTOCOL.slice(1)}`]: openEngine } = await import(
    `../../dist/engines/${PROTOCOL}/index.js`
  );
  return openEngine(address, options);
}

const target = new URL(url);
const port = Number(target.port);
const through = (proxy) => Object.assign(new URL(url), { port: String(proxy.port) }).href;

/** Other programs may be on the same store. */
const named = (name) => `${process.pid} ${name}`;
const THEIRS = named("theirs");
let ids = 0;
const owner = { client: "c", host: "h", pid: process.pid };
const claimOf = (name, over = {}) => ({
  name,
  id: `claim-${process.pid}-${String((ids += 1)).padStart(16, "0")}`,
  units: 1,
  capacity: 1,
  leaseMs: 600_000,
  wait: true,
  owner,
  ...over,
});

async function listed(engine, name) {
  const all = [];
  for await (const state of engine.inspect({ name })) all.push(state);
  return all;
}

/** Handles of the process by kind, as one number: sockets, timers, requests. */
const handles = () => process.getActiveResourcesInfo().length;

/** Answers have no number in these protocols: what is doubled, dropped or moved is the answer to another request. */
const BY_ORDER = ["redis", "postgres", "mysql"].includes(PROTOCOL);
const MOVED = new Set([
  "length: no number",
  "length: no number, then silence",
  "doubled",
  "dropped",
  "the answer before once more",
  "after the next one",
]);

const attacks = [...attacksOn(PROTOCOL)].filter(([name]) => !skip.includes(name) && (only?.includes(name) ?? true));
const proxy = await HostileProxy.to(port, PROTOCOL, seed);
const honest = await connect(url, { leaseMs: 600_000 });
const theirs = await honest.mutex(THEIRS).acquire();
const clock = new FakeClock();
const engine = await again(() => driven(clock, open(through(proxy), { clock, callTimeoutMs: LIMIT_MS })));
const granted = [];
engine.listen((event) => event.kind === "granted" && granted.push(event.name));
const ours = claimOf(named("ours"));
await again(() => driven(clock, engine.claim(ours)));
let lastToken = 0;

/** A claim, a wait, a heartbeat, a way out, a listing and a cell, all at once, while answers are spoiled. */
async function round(name, attack, arming) {
  findings.rounds += 1;
  const [fresh, left, waits] = [claimOf(named(`fresh ${at}`)), claimOf(named("left")), claimOf(THEIRS)];
  const unwatch = engine.cells?.watch(named("cell"), () => {});
  proxy.arm(attack, arming);
  const hit = proxy.hit();
  const calls = {
    claim: engine.claim(fresh),
    waits: engine.claim(waits),
    renew: engine.renew([ours]),
    left: engine.claim(left).then(() => engine.release(left)),
    inspect: listed(engine, THEIRS),
    cell: engine.cells?.write({ name: named("cell"), operation: fresh.id, expected: 0, value: "1" }),
  };
  const outcomes = await Promise.all(
    Object.entries(calls).map(async ([what, call]) => [what, await settles(clock, what, call, hit)]),
  );
  // It goes on for a while: whatever tries again, tries again.
  for (let n = 0; arming.times === ALWAYS && n < AGAIN; n += 1) {
    await clock.advance(LIMIT_MS / 2);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  findings.connectionsMost = Math.max(findings.connectionsMost, proxy.connections);
  proxy.heal();
  // Where a connection's answers are those to other requests, it must be made anew: nobody could tell.
  if (BY_ORDER && MOVED.has(name)) proxy.cut();
  // One bit of "queued" may make a grant of it: an answer that says yes is a yes.
  else if (name === "a bit turned") granted.length = 0;
  else if (outcomes.some(([what, { value }]) => what === "waits" && value?.kind === "granted")) {
    note(findings.stolen, "a claim of what another holds was granted");
  }
  if (!(BY_ORDER && MOVED.has(name)) && granted.includes(THEIRS)) note(findings.stolen, "a grant of it was pushed");
  granted.length = 0;
  unwatch?.();
  await recovers([fresh, left, waits]);
}

/** Honest again: claims are granted and given back, with a token above those before. */
async function recovers(leftovers) {
  const end = Date.now() + HANGS_AFTER_MS;
  const refs = [...leftovers];
  // The clock runs slower at each attempt: on a busy machine it would be over for a new connection before that is made.
  for (let error, pauseMs = 1; ; pauseMs = Math.min(1_000, 2 * pauseMs)) {
    try {
      for (const ref of refs) await driven(clock, engine.release(ref));
      const claim = claimOf(named("again"), { wait: false });
      // Whatever becomes of it: the next attempt releases it first.
      refs.push(claim);
      const answer = await driven(clock, engine.claim(claim));
      await driven(clock, engine.release(claim));
      if (answer.kind !== "granted") throw new Error(`it was ${answer.kind}`);
      if (answer.token <= lastToken) note(findings.tokens, `${answer.token} after ${lastToken}`);
      lastToken = answer.token;
      return;
    } catch (cause) {
      error = cause;
    }
    await clock.advance(LIMIT_MS);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    if (Date.now() < end) continue;
    note(findings.unrecovered, String(error));
    return;
  }
}

await recovers([]);
const before = { handles: handles(), timers: clock.pending, memory: process.memoryUsage().external };
/** To see where a run is: HOSTILE_TRACE=file. */
const trace = (text) => process.env.HOSTILE_TRACE && appendFileSync(process.env.HOSTILE_TRACE, `${driver} ${text}\n`);
for (const [name, attack] of attacks) {
  for (const place of [...PLACES, ALWAYS]) {
    const arming = place === ALWAYS ? { times: ALWAYS } : { skip: place };
    at = place === ALWAYS ? `${name}, every answer` : `${name}, answer ${place}`;
    const began = Date.now();
    await round(name, attack, arming);
    trace(
      `${at} ${Date.now() - began} ms, ${proxy.connections} connections, ${handles()} handles, ${clock.pending} timers`,
    );
  }
}
findings.hits = proxy.hits;
at = "at the end";
// What a release leaves behind for a minute goes, or is tried again a minute later.
const fewTimers = () => clock.pending <= before.timers + MORE_ALLOWED;
async function untilFewTimers() {
  for (const wait = Date.now() + HANGS_AFTER_MS; !fewTimers() && Date.now() < wait; ) {
    await clock.advance(LIMIT_MS / 4);
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
}
await untilFewTimers();
await recovers([]);
// Each attempt to recover leaves its tombstones.
await untilFewTimers();
// Drivers have timers of their own, of seconds by the machine's clock.
const fewHandles = () => handles() <= before.handles + MORE_ALLOWED;
for (const wait = Date.now() + HANGS_AFTER_MS; !fewHandles() && Date.now() < wait; ) await turn();
if (!fewHandles())
  note(findings.grown, `handles: ${before.handles}, then ${process.getActiveResourcesInfo().join(" ")}`);
const more = { timers: clock.pending, memory: process.memoryUsage().external };
if (more.timers > before.timers + MORE_ALLOWED) note(findings.grown, `timers: ${before.timers}, then ${more.timers}`);
if (more.memory > before.memory + MEMORY_ALLOWED) note(findings.grown, `memory: ${before.memory}, then ${more.memory}`);
at = "while it is closed";
const [[, worst] = []] = attacks;
if (worst !== undefined) proxy.arm(worst, { times: ALWAYS });
await settles(clock, "closing", engine[Symbol.asyncDispose](), proxy.hit());
const end = Date.now() + HANGS_AFTER_MS;
while (proxy.connections > 0 && Date.now() < end) await turn();
if (proxy.connections > 0) note(findings.grown, `${proxy.connections} connections are left`);
if (clock.pending > 0) note(findings.grown, `${clock.pending} timers are left`);

// Whoever connects while every answer is wrong is told so. Side by side: here the drivers wait by clocks of their own.
at = "while it is opened";
await Promise.all(
  attacks.map(async ([name, attack]) => {
    const bad = await HostileProxy.to(port, PROTOCOL, seed);
    bad.arm(attack, { times: ALWAYS });
    const own = new FakeClock();
    const opening = outcomeOf(open(through(bad), { clock: own, callTimeoutMs: LIMIT_MS }));
    while (!(await soon(opening, 20))) await own.advance(100);
    const { value, error } = await opening;
    if (value === undefined && error === undefined) findings.hangs.push(`opening: ${name}`);
    if (value !== undefined) await settles(own, `closing: ${name}`, value[Symbol.asyncDispose](), Promise.resolve());
    const until = Date.now() + HANGS_AFTER_MS;
    while (bad.connections > 0 && Date.now() < until) await turn();
    if (bad.connections > 0) findings.grown.push(`opening: ${name}: ${bad.connections} connections are left`);
    await bad.close();
  }),
);
await theirs.release();
await honest.close();
await proxy.close();
console.log(JSON.stringify(findings));
process.exit(0);
