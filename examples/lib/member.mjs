// One process of an example, as it sees itself: its settings, its locks, and the commands of its parent.
import { connect } from "holdfast";

/** What the parent gave along: `name`, `index`, `folder`, `url`, `lock`, and what the example adds. */
export const settings = JSON.parse(process.argv[2]);

/** A line on the parent's screen. */
export const say = (said) => process.send({ said });

/** A short lease: after a kill nobody wants to wait for long. A real program can keep the default of 10 s. */
export function open(url = settings.url, leaseMs = 4000) {
  const special = {
    zookeeper: { sessionTimeoutMs: 4000 }, // a killed holder's lock is free when its session ends
    redlock: { memberTimeoutMs: 500 }, // a quorum gives up on a server soon: a busy machine needs longer
  };
  return connect(url, { leaseMs, ...special[/^\w+/.exec(url)] });
}

/** What `--no-lock` puts in the place of a lock: it lets everybody in. */
export const noLock = { using: (run) => run(), release: () => {} };

/** The power fails, here and now: SIGKILL ends this process before the next line of it runs. */
export const die = () => process.kill(process.pid, "SIGKILL");

/** Do what the parent asks for, by name; several commands may be under way at a time. `close` is the last one. */
export function serve({ close, ...commands }) {
  const all = { ...commands, ready: () => {} };
  const obey = async ({ number, command, details }) => {
    if (command === "close") {
      await close();
      return process.disconnect();
    }
    try {
      process.send({ number, answer: await all[command](details) });
    } catch ({ message, code, stack }) {
      process.send({ number, error: { message, code, stack } });
    }
  };
  process.on("message", (message) => void obey(message));
  // The parent is gone: so is the reason to be here.
  process.on("disconnect", () => process.exit());
}
