// A server whose writes are fenced: one of several processes that share a store. Told what to be by its argument:
// { framework, store, url, folder, bare }. Prints its port. `bare`: as the docs have it, without error handlers of its own.
import { createServer } from "node:http";
import { serve } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import {
  expressGuard,
  fastifyGuard,
  fencedWriteFile,
  honoGuard,
  httpGuard,
  mysqlFence,
  postgresFence,
  problemOf,
  redisFence,
  sqliteFence,
  tokenOf,
} from "holdfast/fence";
import { Hono } from "hono";
import { Redis } from "ioredis";
import Database from "libsql";
import mysql from "mysql2/promise";
import { Pool } from "pg";

const { framework, store, url, folder, bare } = JSON.parse(process.argv[2]);

const fences = {
  redis: () => redisFence(new Redis(url)),
  postgres: () => postgresFence(new Pool({ connectionString: url })),
  mysql: () => mysqlFence(mysql.createPool(url)),
  sqlite: () => sqliteFence(new Database(url, { timeout: 5000 })),
};
const fence = fences[store]();

/** Shows the token again to what is written: a request may be overtaken between the guard and here. */
const write = (path, body, token) => fencedWriteFile(`${folder}${path}`, body, token);
const lockOf = (path) => `item:${bare ? decodeURIComponent(path.slice(1)) : path.slice(1)}`;

const servers = {
  node() {
    const guard = httpGuard({ fence, lock: (request) => lockOf(request.url) });
    const serveOne = async (request, response) => {
      try {
        if (!(await guard(request, response))) return;
        let body = "";
        for await (const piece of request) body += piece;
        await write(request.url, body, tokenOf(request));
        response.end("written");
      } catch (error) {
        const problem = problemOf(error);
        response.writeHead(problem?.status ?? 500, { "Content-Type": "application/problem+json" });
        response.end(JSON.stringify(problem ?? { detail: String(error) }));
      }
    };
    const documented = async (request, response) => {
      if (await guard(request, response)) response.end("written");
    };
    const server = createServer((request, response) => void (bare ? documented : serveOne)(request, response));
    server.listen(0, "127.0.0.1", () => console.log(server.address().port));
  },
  express() {
    const app = express();
    app.use(expressGuard({ fence, lock: (request) => lockOf(request.url) }), express.text());
    app.put("/:name", (request, response, next) => {
      write(request.url, request.body, tokenOf(request)).then(() => response.send("written"), next);
    });
    if (!bare)
      app.use((error, _request, response, _next) => {
        const problem = problemOf(error);
        response.status(problem?.status ?? 500).type("application/problem+json");
        response.send(JSON.stringify(problem ?? { detail: String(error) }));
      });
    const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
  },
  async fastify() {
    const app = fastify({ routerOptions: { maxParamLength: 10_000 } });
    app.addHook("preHandler", fastifyGuard({ fence, lock: (request) => lockOf(request.url) }));
    app.put("/:name", (request) => write(request.url, request.body, tokenOf(request)).then(() => "written"));
    if (!bare)
      app.setErrorHandler((error, _request, reply) => {
        const problem = problemOf(error);
        return reply
          .code(problem?.status ?? 500)
          .type("application/problem+json")
          .send(JSON.stringify(problem ?? { detail: String(error) }));
      });
    await app.listen({ host: "127.0.0.1", port: 0 });
    console.log(app.server.address().port);
  },
  hono() {
    const app = new Hono();
    app.use(honoGuard({ fence, lock: (context) => lockOf(context.req.path) }));
    app.put("/:name", async (context) => {
      await write(context.req.path, await context.req.text(), tokenOf(context.req.raw));
      return context.text("written");
    });
    if (!bare)
      app.onError((error, context) => {
        const problem = problemOf(error);
        const headers = { "Content-Type": "application/problem+json" };
        return context.body(JSON.stringify(problem ?? { detail: String(error) }), problem?.status ?? 500, headers);
      });
    serve({ fetch: app.fetch, hostname: "127.0.0.1", port: 0 }, ({ port }) => console.log(port));
  },
};
await servers[framework]();
