// One small server in each framework, on node:http as a program would run it. Install the frameworks first: install.mjs.
import { once } from "node:events";
import { createServer } from "node:http";
import { serve as serveHono } from "@hono/node-server";
import express5 from "express";
import express4 from "express4";
import fastify from "fastify";
import { Hono } from "hono";

export const FRAMEWORKS = ["express4", "express5", "fastify", "hono"];

/**
 * Starts a server: `POST /lock/:id` holds a lock, `POST /pay` has `Idempotency-Key`, `POST /bare` has neither.
 *
 * `entry` is what the framework's entry of holdfast exports. `lock`: options of withLock but for the name; `idempotency`: options of
 * withIdempotencyKey. `handle({ id, body, held })` answers `{ status, headers, body }`, a body may be a stream; it may throw, or never answer.
 */
export async function serve(framework, entry, { locks, lock = {}, idempotency, handle }) {
  const { withLock, withIdempotencyKey, heldBy } = entry;
  const run = async (request, id, body, bare) => handle({ id, body, held: bare ? undefined : heldBy(request) });
  if (framework.startsWith("express")) {
    const express = framework === "express4" ? express4 : express5;
    const app = express();
    app.use(express.json());
    const answer = (bare) => (request, response, next) => {
      void run(request, request.params.id, request.body, bare).then(({ status = 200, headers = {}, body = "" }) => {
        response.status(status).set(headers);
        if (typeof body === "object") body.pipe(response);
        else response.send(body);
      }, next);
    };
    app.post("/bare", answer(true));
    app.post("/lock/:id", withLock(locks, { ...lock, name: (request) => `item:${request.params.id}` }), answer());
    if (idempotency !== undefined) app.post("/pay", withIdempotencyKey(locks, idempotency), answer());
    // Errors are the tests' to see, not the console's.
    app.use((error, _request, response, next) => {
      if (response.headersSent) next(error);
      else response.status(error.status ?? 500).json({ message: error.message });
    });
    return listening(createServer(app).listen(0, "127.0.0.1"));
  }
  if (framework === "fastify") {
    const app = fastify({ routerOptions: { maxParamLength: 10_000 } });
    await app.register(entry.default, { locks });
    const answer = (bare) => async (request, reply) => {
      const { status = 200, headers = {}, body = "" } = await run(request, request.params.id, request.body, bare);
      return reply.code(status).headers(headers).send(body);
    };
    app.post("/bare", answer(true));
    app.post("/lock/:id", { lock: { ...lock, name: (request) => `item:${request.params.id}` } }, answer());
    if (idempotency !== undefined) app.post("/pay", { idempotency }, answer());
    await app.listen({ host: "127.0.0.1", port: 0 });
    const served = await listening(app.server);
    return { url: served.url, close: () => served.close(() => app.close()) };
  }
  const app = new Hono();
  const answer = (bare) => async (context) => {
    const body = await context.req.json().catch(() => undefined);
    const { status = 200, headers = {}, body: text = "" } = await run(context, context.req.param("id"), body, bare);
    return context.body(typeof text === "object" ? ReadableStream.from(text) : text, status, headers);
  };
  app.post("/bare", answer(true));
  app.post("/lock/:id", withLock(locks, { ...lock, name: (context) => `item:${context.req.param("id")}` }), answer());
  if (idempotency !== undefined) app.post("/pay", withIdempotencyKey(locks, idempotency), answer());
  app.onError((error, context) => context.json({ message: error.message }, 500));
  return listening(serveHono({ fetch: app.fetch, hostname: "127.0.0.1", port: 0 }));
}

async function listening(server) {
  if (!server.listening) await once(server, "listening");
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    async close(end = () => new Promise((resolve) => server.close(resolve))) {
      const ended = end();
      server.closeAllConnections();
      await ended;
    },
  };
}
