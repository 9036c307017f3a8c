import { connect } from "node:net";
import { programsOf } from "./packages.js";
import { freePorts, Running } from "./process.js";

/** One server on a port of its own. */
export async function startMemcached(
  args: readonly string[] = [],
  at?: number,
): Promise<{ port: number; running: Running }> {
  const { memcached: program = "" } = programsOf("memcached");
  const port = at ?? (await freePorts(1))[0] ?? 0;
  const running = await Running.start({
    program,
    args: () => ["-u", "nobody", "-l", "127.0.0.1", "-p", String(port), "-U", "0", ...args],
    ready: () => answers(port),
  });
  return { port, running };
}

function answers(port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("version\r\n"));
    socket.once("data", () => (socket.destroy(), resolve()));
    socket.once("error", reject);
  });
}
