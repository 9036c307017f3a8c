// Compiled, never run: the client library is what is described of it.
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import type { Grpc, GrpcClient, GrpcMetadata } from "../../src/engines/etcd/drivers/grpc-module.js";
import { etcdClient, etcdEngine, type HeldCompare, whileHeld } from "../../src/engines/etcd/index.js";
import type { Hold } from "../../src/index.js";

export const client: GrpcClient = new Client("h", credentials.createInsecure());
export const metadata: GrpcMetadata = new Metadata();
export const made: Grpc["credentials"] = credentials;

export async function engines(hold: Hold): Promise<HeldCompare> {
  await etcdEngine(await etcdClient("etcd://localhost", { tls: { ca: "" } }), { prefix: "p/" });
  return whileHeld(hold);
}
