import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Engine, EngineEvent } from "../../src/core/engine.js";
import { EVENT_TYPES, Events, type LockEventType } from "../../src/core/events.js";
import { Listeners } from "../../src/engine-kit/listeners.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import { intercept } from "../../src/testing/intercept.js";

/** An engine that found something out before it was handed over. */
function warning(...messages: string[]): Engine {
  const listeners = new Listeners();
  for (const message of messages) listeners.tell({ kind: "warning", message });
  return { ...intercept(memoryEngine(), {}), listen: (listener) => listeners.add(listener) };
}

const later = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("a warning found while connecting reaches the first listener, however late it comes", async () => {
  const locks = await connect(warning("it polls", "no replicas"));
  await later();
  const heard: string[] = [];
  locks.on("warning", ({ message }) => heard.push(message));
  expect(heard).toEqual([]);
  await later();
  expect(heard).toEqual(["it polls", "no replicas"]);
  const second: string[] = [];
  locks.on("warning", ({ message }) => second.push(message));
  await later();
  expect(second).toEqual([]);
  await locks.close();
});

test("a listener that left at once is told nothing", async () => {
  const locks = await connect(warning("it polls"));
  await later();
  const heard: string[] = [];
  locks.on("warning", ({ message }) => heard.push(message))();
  await later();
  expect(heard).toEqual([]);
  await locks.close();
});

test("warnings that nobody hears do not pile up: the first ones are kept", async () => {
  const listeners = new Listeners();
  for (let n = 0; n < 1000; n += 1) listeners.tell({ kind: "warning", message: String(n) });
  const heard: EngineEvent[] = [];
  // Who left at once is told nothing.
  listeners.add((event) => heard.push(event))();
  listeners.tell({ kind: "warning", message: "kept again" });
  await later();
  expect(heard).toEqual([]);
  for (let n = 0; n < 1000; n += 1) listeners.tell({ kind: "warning", message: String(n) });
  listeners.add((event) => heard.push(event));
  await later();
  expect(heard).toHaveLength(20);
  expect(heard[0]).toEqual({ kind: "warning", message: "kept again" });
  const events = new Events();
  for (let n = 0; n < 1000; n += 1) events.emit("warning", () => ({ message: String(n) }));
  const told: string[] = [];
  events.on("warning", ({ message }) => told.push(message));
  await later();
  expect(told).toEqual(Array.from({ length: 20 }, (_, n) => String(n)));
});

test("of all events only warnings are kept for who listens first; the others are not even made while nobody listens", async () => {
  const events = new Events();
  const made: LockEventType[] = [];
  const emitAll = (): void => {
    for (const type of EVENT_TYPES) events.emit(type, () => (made.push(type), { message: type }));
  };
  const heard: unknown[] = [];
  emitAll();
  expect(made).toEqual(["warning"]);
  const leaving = EVENT_TYPES.map((type) => events.on(type, (event) => heard.push([type, event])));
  await later();
  expect(heard).toEqual([["warning", { message: "warning" }]]);
  heard.length = 0;
  emitAll();
  expect(heard).toEqual(EVENT_TYPES.map((type) => [type, { message: type }]));
  // When all have left it is as before.
  for (const leave of leaving) leave();
  made.length = 0;
  emitAll();
  expect(made).toEqual(["warning"]);
  expect(EVENT_TYPES.map((type) => events.wants(type))).not.toContain(true);
});

test("grants and losses are not kept: they are a hint for whoever asked, and told once", async () => {
  const listeners = new Listeners();
  listeners.tell({ kind: "lost", name: "a", id: "b" });
  const heard: EngineEvent[] = [];
  listeners.add((event) => heard.push(event));
  await later();
  expect(heard).toEqual([]);
});
