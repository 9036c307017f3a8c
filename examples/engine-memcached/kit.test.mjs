// node --test: the engine before the kit, on the server at MEMCACHED (host:port).
import { describe, test } from "node:test";
import { conformance, MUTEX_ONLY } from "holdfast/testing";
import { memcachedEngine } from "./engine.mjs";

const [host, port] = (process.env.MEMCACHED ?? "127.0.0.1:11211").split(":");
const engine = () => memcachedEngine({ host, port: Number(port) });

// All at once: most of a case's time is spent waiting for leases, which end by whole seconds here.
void describe("memcached", { concurrency: 100 }, () => {
  conformance(test, { engine, leaseStepMs: 3000, excused: MUTEX_ONLY });
});
