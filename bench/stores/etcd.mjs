import { randomUUID } from "node:crypto";
import { etcdClient } from "../../dist/engines/etcd/index.js";
import { startEtcd } from "../lib/etcd-server.mjs";
import { holdfast, LEASE_MS, POLL_MS, pause } from "./holdfast.mjs";

/** A key that is put if absent, under a lease that is kept alive; whoever finds it there looks again. */
const bareKey = {
  async open({ url }) {
    const client = await etcdClient(url);
    const { ID: lease } = await client.call("leaseGrant", { TTL: LEASE_MS / 1000 });
    const alive = setInterval(() => void client.keepAlive(lease).catch(() => {}), LEASE_MS / 3);
    return {
      async take(name) {
        const key = `bare/${name}`;
        const compare = [{ key, target: 1, result: 0, create_revision: 0 }];
        const success = [{ request_put: { key, value: Buffer.from(randomUUID()), lease } }];
        while (!(await client.call("txn", { compare, success })).succeeded) await pause(POLL_MS);
        return () => client.call("txn", { success: [{ request_delete_range: { key } }] });
      },
      async close() {
        clearInterval(alive);
        client.close();
      },
    };
  },
};

export const etcd = {
  async start() {
    const server = await startEtcd();
    const client = await etcdClient(server.url);
    return {
      at: { url: server.url },
      roundTrip: { name: "read of one key", run: () => client.call("range", { key: "round trip" }) },
      async requests() {
        const text = await (await fetch(`http://127.0.0.1:${server.port}/metrics`)).text();
        const counts = [...text.matchAll(/^grpc_server_msg_received_total\{.*\} (\S+)$/gm)];
        return counts.reduce((sum, [, count]) => sum + Number(count), 0);
      },
      async stop() {
        client.close();
        server.stop();
      },
    };
  },
  contestants: { holdfast, "bare key": bareKey },
};
