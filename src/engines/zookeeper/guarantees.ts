import type { Guarantees } from "../../core/guarantees.js";
import { CODE, hasCode } from "./errors.js";
import type { Session } from "./session.js";

/** How many servers decide; what cannot be read counts as none. */
export async function readVoters(session: Session): Promise<number> {
  const config = await session
    .read((client) => client.get("/zookeeper/config"))
    .catch((error: unknown) => {
      // It is read once: a connection that breaks just now must not make three servers look like one.
      if (!hasCode(error, CODE.noAuth)) throw error;
      return null;
    });
  return config?.data.toString().match(/^server\.\d+=(?!.*:observer)/gm)?.length ?? 0;
}

/** Three servers or more decide together. */
export function guaranteesOf(voters: number): Guarantees {
  return {
    exclusion: voters >= 3 ? "consensus" : "single-server",
    token: "monotonic",
    order: "fifo",
    wake: "push",
    crashRelease: "session",
    survivesRestart: true,
  };
}
