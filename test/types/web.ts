// Compiled, never run: the middleware fits into each framework, and knows its requests.
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import type { Locks } from "../../src/locks.js";
import * as forExpress from "../../src/web/express.js";
import holdfast, * as forFastify from "../../src/web/fastify.js";
import * as forHono from "../../src/web/hono.js";

export async function apps(locks: Locks): Promise<void> {
  const { withLock, withIdempotencyKey, memoryAnswers } = forExpress;
  express().post(
    "/items/:id",
    withIdempotencyKey(locks, { answers: memoryAnswers(), scope: (request) => request.ip ?? "" }),
    withLock(locks, { name: (request) => request.params.id }),
    (request, response) => void response.json(forExpress.heldBy(request).token),
  );
  express().use(withLock(locks, { name: "all" }));
  // @ts-expect-error a name is no number
  express().use(withLock(locks, { name: () => 5 }));

  const app = fastify();
  await app.register(holdfast, { url: "memory:", connect: { label: "shop" } });
  const mutex = app.locks.mutex("a");
  app.post<{ Params: { id: string } }>(
    "/items/:id",
    {
      lock: { name: (request) => request.params.id, recipe: (name) => app.locks.readWrite(name).write, waitMs: 500 },
      idempotency: { answers: forFastify.cellAnswers(app.locks), scope: (request) => request.ip, required: true },
    },
    (request, reply) => reply.send(forFastify.heldBy(request).token + mutex.name.length),
  );
  // @ts-expect-error there is no such option
  app.get("/", { lock: { name: "a", waitms: 5 } }, async () => "");

  new Hono().post(
    "/items/:id",
    forHono.withIdempotencyKey(locks, { answers: memoryAnswers(), scope: (context) => context.req.raw.url }),
    forHono.withLock(locks, {
      name: (context) => `item:${context.req.param("id")}`,
      recipe: (name) => locks.semaphore(name, 3),
    }),
    (context) => context.json(forHono.heldBy(context).token),
  );
  new Hono().use(forHono.withLock(locks, { name: "all" }));
}
