// A program with metrics for Prometheus, as docs/telemetry.md shows it, that does what it is told: a line of its input each.
import { createInterface } from "node:readline";
import { connect } from "holdfast";
import { instrument } from "holdfast/otel";
import { forPrometheus } from "../../tools/telemetry/sdk.mjs";

const [port, url] = process.argv.slice(2);
const locks = await connect(url, { callTimeoutMs: 500 });
instrument(locks, { meter: await forPrometheus(Number(port)), tracer: null });
const use = (name) => locks.mutex(name).using(() => {});

const DO = {
  use: () => Promise.all(["a", "b", "c"].map(use)),
  /** One waits for longer than the alert's limit. */
  async wait() {
    const hold = await locks.mutex("wait").acquire();
    const waiting = locks.mutex("wait").acquire();
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    await hold.release();
    await (await waiting).release();
  },
  async lose() {
    const hold = await locks.mutex("lose").acquire({ renew: false, leaseMs: 200 });
    await new Promise((resolve) => hold.signal.addEventListener("abort", resolve));
    await hold.release().catch(() => {});
  },
  /** The store is away: each of these is told so. */
  async fail() {
    for (let n = 0; n < 5; n += 1)
      await locks
        .mutex("fail")
        .acquire({ waitMs: 1000 })
        .catch(() => {});
  },
};

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  await DO[line]();
  console.log(`done ${line}`);
}
process.exit(0);
