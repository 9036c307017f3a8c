import type { Locks } from "../../src/locks.js";
import * as express from "../../src/web/express.js";
import * as fastify from "../../src/web/fastify.js";
import * as hono from "../../src/web/hono.js";
import { loadWebTool } from "./web-frameworks.js";

export type Framework = "express4" | "express5" | "fastify" | "hono";

export type Handled = {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | AsyncIterable<unknown>;
};

export type Call = { readonly id: string; readonly body: unknown; readonly held: express.RequestHold };

export type Served = { readonly url: string; close(): Promise<void> };

type Routes = {
  readonly locks: Locks;
  readonly lock?: express.TakeOptions & Pick<express.LockRequestOptions<object>, "recipe">;
  readonly idempotency?: express.IdempotencyOptions<object>;
  handle(call: Call): Promise<Handled>;
};

type Servers = { readonly serve: (framework: Framework, entry: object, routes: Routes) => Promise<Served> };

const ENTRIES = { express4: express, express5: express, fastify, hono } as const;
export const FRAMEWORKS: readonly Framework[] = ["express4", "express5", "fastify", "hono"];

/** A server in one of the frameworks. They are there: `install-first.ts` saw to it before the run. */
export async function webServers(): Promise<(framework: Framework, routes: Routes) => Promise<Served>> {
  const { serve } = (await loadWebTool("servers.mjs")) as Servers;
  return (framework, routes) => serve(framework, ENTRIES[framework], routes);
}
