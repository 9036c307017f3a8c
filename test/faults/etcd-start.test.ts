import { createServer, type Server } from "node:net";
import { expect, test } from "vitest";
import { startEtcd } from "../servers/etcd.js";
import { Running } from "../servers/process.js";

function listening(port: number): Promise<Server | null> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(null));
    server.listen(port, "127.0.0.1", () => resolve(server));
  });
}

test("one member that cannot start is told, and the others do not stay", { timeout: 60_000 }, async () => {
  const ports: number[] = [];
  let taken: Server | null = null;
  const wire = async (port: number): Promise<number> => {
    ports.push(port);
    if (ports.length === 1) taken = await listening(port);
    return port;
  };
  await expect(startEtcd(3, [], undefined, wire)).rejects.toThrow(/did not start[^]*address already in use/);
  expect(taken).not.toBeNull();
  for (const port of ports.slice(1)) {
    const server = await listening(port);
    expect(server, `nobody listens on ${port} any more`).not.toBeNull();
    server?.close();
  }
  (taken as Server | null)?.close();
});

test("a program that is not there is an error, not a wait", { timeout: 45_000 }, async () => {
  const start = Running.start({
    program: "/nowhere/etcd",
    args: () => [],
    ready: () => Promise.reject(new Error("not ready")),
  });
  await expect(start).rejects.toThrow(/did not start[^]*ENOENT/);
});
