// Between a client and a store: what goes through may be late, slow, or stand still for a while.
import { connect, createServer } from "node:net";

/** What goes one way on one connection, in order. All connections share the bandwidth of that way. */
function pass(from, to, link, side) {
  let last = Promise.resolve();
  from.on("data", (data) => {
    link.bytes[side] += data.length;
    link.busyUntil[side] = Math.max(performance.now(), link.busyUntil[side], link.stoppedUntil);
    if (link.bytesPerSecond < Infinity) link.busyUntil[side] += (1000 * data.length) / link.bytesPerSecond;
    const at = link.busyUntil[side] + (side === "answers" ? link.delayMs : 0);
    last = last.then(() => until(at)).then(() => to.write(data));
  });
}

function until(at) {
  const leftMs = at - performance.now();
  return leftMs <= 0 ? undefined : new Promise((resolve) => setTimeout(resolve, leftMs));
}

export async function slowProxy(port) {
  const link = {
    delayMs: 0,
    bytesPerSecond: Infinity,
    stoppedUntil: 0,
    bytes: { requests: 0, answers: 0 },
    busyUntil: { requests: 0, answers: 0 },
    connections: 0,
  };
  const sockets = new Set();
  const server = createServer((near) => {
    link.connections += 1;
    const far = connect(port, "127.0.0.1");
    for (const [one, other, side] of [
      [near, far, "requests"],
      [far, near, "answers"],
    ]) {
      sockets.add(one);
      one.setNoDelay(true);
      pass(one, other, link, side);
      one.on("error", () => other.destroy());
      one.on("close", () => {
        sockets.delete(one);
        other.destroy();
      });
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: server.address().port,
    link,
    heal: () => Object.assign(link, { delayMs: 0, bytesPerSecond: Infinity, stoppedUntil: 0 }),
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
