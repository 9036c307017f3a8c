import { connect, createServer, type Socket } from "node:net";
import { Framer } from "../../src/engines/zookeeper/drivers/wire/jute.js";

/** `asked`: by the client. `answered`: by the server, events among it. */
export type Way = "asked" | "answered";

export type PacketGate = {
  readonly port: number;
  /** Stands still at the nth packet from now on that goes this way: it and all behind it wait. Called when it came to that. */
  hold(way: Way, nth: number, reached: () => void): void;
  /** What waits goes on, in its order; nothing is held any more. */
  open(): void;
  /** Ends the connection: what waits arrives nowhere. */
  cut(): void;
  close(): void;
};

/** A wire to a ZooKeeper server that can stand still between two packets. */
export async function packetGate(serverPort: number): Promise<PacketGate> {
  const sockets = new Set<Socket>();
  const waiting: (() => void)[] = [];
  let held: { readonly way: Way; left: number; readonly reached: () => void } | null = null;
  const pass = (way: Way, from: Socket, to: Socket): void => {
    const framer = new Framer();
    from.on("data", (piece) => {
      for (const packet of framer.push(piece)) {
        const length = Buffer.alloc(4);
        length.writeInt32BE(packet.length);
        // A copy: what it lies in is gone by the time that it goes on.
        const whole = Buffer.concat([length, packet]);
        const send = (): void => void (to.destroyed || to.write(whole));
        if (held?.way !== way || (held.left -= 1) > 0) send();
        else {
          waiting.push(send);
          if (held.left === 0) held.reached();
        }
      }
    });
    from.on("error", () => {});
    from.on("close", () => to.destroy());
  };
  const server = createServer((near) => {
    const far = connect(serverPort, "127.0.0.1");
    for (const socket of [near, far]) {
      socket.setNoDelay(true);
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket));
    }
    pass("asked", near, far);
    pass("answered", far, near);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = (): void => {
    held = null;
    waiting.length = 0;
    for (const socket of sockets) socket.destroy();
  };
  return {
    port: (server.address() as { port: number }).port,
    hold: (way, nth, reached) => void (held = { way, left: nth, reached }),
    open() {
      held = null;
      for (const send of waiting.splice(0)) send();
    },
    cut,
    close() {
      cut();
      server.close();
    },
  };
}
