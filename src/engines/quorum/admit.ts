// Beyond the fixed set of files: members must be different servers.
import type { Engine } from "../../core/engine.js";
import { EngineRefusedError, isRefusal } from "../../core/errors.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Member } from "./member.js";

/** Checks which server is behind each member: none twice, no replica; and warns of what weakens the vote. */
export class Admission {
  readonly #servers = new Map<Member, string>();
  readonly #warn: (message: string) => void;
  readonly #restartGuardMs: number;

  constructor(restartGuardMs: number, warn: (message: string) => void) {
    this.#restartGuardMs = restartGuardMs;
    this.#warn = warn;
  }

  /** Warns of a number of members that is no good choice. */
  static checkCount(members: number, warn: (message: string) => void): void {
    const mayFail = Math.ceil(members / 2) - 1;
    if (members < 3) warn(`a quorum of ${members} members stops as soon as one of them is away: use three or five`);
    else if (members % 2 === 0)
      warn(
        `a quorum of ${members} members survives ${mayFail} failures, as one of ${members - 1} does: use an odd number`,
      );
  }

  async admit(member: Member, engine: Engine): Promise<void> {
    const info = await serverInfoOf(engine);
    if (info !== undefined) this.#check(member, info);
    member.identity = info === undefined || info.server === "" ? member.name : info.server;
    const canTell = info?.upMs !== undefined || engine.guarantees.survivesRestart;
    if (this.#restartGuardMs > 0 && !canTell)
      this.#warn(`quorum member ${member.name} cannot tell when it started: restartGuardMs does not watch over it`);
  }

  #check(member: Member, { server, replica, replicas = 0, cluster }: ServerInfo): void {
    for (const [other, known] of this.#servers) {
      if (other === member || known !== server || server === "") continue;
      throw refused(`${member.name} and ${other.name} are the same server`, "Each member must fail by itself.");
    }
    if (replica) throw refused(`${member.name} is a replica`, "Name its primary instead: a replica decides nothing.");
    this.#servers.set(member, server);
    if (cluster)
      this.#warn(
        `quorum member ${member.name} is a node of a cluster, which may move its locks or replace it: its vote can be lost`,
      );
    if (replicas > 0)
      this.#warn(`quorum member ${member.name} has replicas: one that is promoted without the last grants votes twice`);
  }
}

/** Undefined where the store cannot or will not say; rejects when it is away. */
async function serverInfoOf(engine: Engine): Promise<ServerInfo | undefined> {
  try {
    return await engine.serverInfo?.();
  } catch (error) {
    if (isRefusal(error)) return undefined;
    throw error;
  }
}

function refused(problem: string, advice: string): EngineRefusedError {
  return new EngineRefusedError("quorum", advice, new Error(problem));
}
