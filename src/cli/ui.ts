import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { ownerText } from "../core/inspect.js";
import { forNode, liveView } from "../live/index.js";
import { EVERY_DEFAULT_MS, EVERY_MAX_MS, EVERY_MIN_MS } from "../live/limits.js";
import { Locks } from "../locks.js";
import { type Command, EXIT, Failure, flag, seconds, URL_OPTION, UsageError, whole } from "./command.js";
import { print } from "./print.js";
import { printable } from "./printable.js";
import { openStore } from "./store.js";

const HOST = "127.0.0.1";

export const ui: Command = {
  usage: "ui [options] [PREFIX]",
  summary: "show the names in use in a browser, live",
  options: {
    ...URL_OPTION,
    port: { type: "string", value: "PORT", help: "where to listen, on this machine alone (a free port)" },
    every: { type: "string", value: "SECONDS", help: "how often to read the store while somebody looks (1)" },
    release: { type: "boolean", help: "allow the page to take locks away" },
  },
  examples: ["holdfast ui", "holdfast ui --every 5 backup:", "holdfast ui --release"],
  async main(given) {
    const [prefix = "", ...more] = given.words;
    if (more.length > 0) throw new UsageError("one prefix is enough");
    const port = whole(given, "port", 0, 65_535) ?? 0;
    const everyMs = Math.min(EVERY_MAX_MS, Math.max(EVERY_MIN_MS, seconds(given, "every") ?? EVERY_DEFAULT_MS));
    const { client, close } = await openStore(given, { label: "holdfast ui" });
    const view = liveView(new Locks(client, close), { everyMs, prefix, release: flag(given, "release") });
    const server = createServer(forNode(view));
    try {
      client.events.on("forceReleased", ({ name, token, holder }) => {
        process.stderr.write(`${printable(`"${name}" was taken from ${ownerText(holder)}, token ${token}`)}\n`);
      });
      await print(`http://${HOST}:${await listen(server, port)}/`);
      await ended();
      return EXIT.ok;
    } finally {
      view.close();
      server.close();
      server.closeAllConnections();
      await close();
    }
  },
};

function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => reject(new Failure(`port ${port}: ${error.message}`, EXIT.unavailable)));
    server.listen(port, HOST, () => resolve((server.address() as AddressInfo).port));
  });
}

/** Until somebody ends it. */
function ended(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => resolve());
  });
}
