// Compiled by test/conformance/drivers.test.ts: what these libraries make is taken as their own types describe it.
import { Pool } from "@neondatabase/serverless";
import type { GlideClient } from "@valkey/valkey-glide";
import { createPool } from "mariadb";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import { redisEngine } from "../../src/engines/redis/index.js";

export const engines = (client: GlideClient): unknown[] => [
  mysqlEngine(createPool({})),
  postgresEngine(new Pool()),
  redisEngine(client),
];
