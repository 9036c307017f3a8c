// The client libraries of this folder, for the tests, which are not in it.
import { connect } from "node:net";
import { Pool as NeonPool, neon, neonConfig } from "@neondatabase/serverless";
import * as glide from "@valkey/valkey-glide";
import * as mariadb from "mariadb";
import * as mariadbCallback from "mariadb/callback";
import postgres from "postgres";
import { WebSocket, WebSocketServer } from "ws";

glide.Logger.init("off");

export { glide, mariadb, mariadbCallback, NeonPool, neon, postgres };

/** What Neon has before its servers: bytes of a WebSocket to a port and back. Pools made after this go through it. */
export async function startWebSocketProxy() {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await new Promise((resolve) => server.once("listening", resolve));
  server.on("connection", (socket, request) => {
    const port = new URL(request.url, "ws://local").searchParams.get("port");
    const upstream = connect(Number(port), "127.0.0.1");
    upstream.on("data", (bytes) => socket.send(bytes));
    upstream.on("close", () => socket.close());
    upstream.on("error", () => socket.close());
    socket.on("message", (bytes) => upstream.write(bytes));
    socket.on("close", () => upstream.destroy());
    socket.on("error", () => upstream.destroy());
  });
  neonConfig.webSocketConstructor = WebSocket;
  neonConfig.wsProxy = (_host, port) => `127.0.0.1:${server.address().port}/?port=${port}`;
  neonConfig.useSecureWebSocket = false;
  neonConfig.pipelineTLS = false;
  neonConfig.pipelineConnect = false;
  return { stop: () => new Promise((resolve) => server.close(() => resolve())) };
}
