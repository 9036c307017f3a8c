import type { ConnectionOptions } from "node:tls";
import { InvalidOptionError } from "../../core/errors.js";
import { type Host, parseHosts, parseUser } from "../../engine-kit/hosts.js";

/** An etcd URL, taken apart. */
export type EtcdUrl = {
  readonly hosts: readonly Host[];
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly tls: ConnectionOptions | undefined;
};

const FORM = "etcd://[user:password@]host[:port],host[:port],… or etcds://…";
const PORT = 2379;

/** Several hosts are more than `URL` can take apart. What is wrong is told without the URL: it may hold a password. */
export function parseEtcdUrl(url: string, tls?: ConnectionOptions): EtcdUrl {
  const [, scheme = "", userInfo, hostList = ""] = /^(etcds?):\/\/(?:([^@/?#]*)@)?([^/?#]*)\/?$/i.exec(url) ?? [];
  if (scheme === "") throw wrong("it cannot be read");
  return {
    hosts: parseHosts(hostList, PORT, wrong),
    ...parseUser(userInfo, wrong),
    tls: tls ?? (scheme.toLowerCase() === "etcds" ? {} : undefined),
  };
}

function wrong(problem: string): InvalidOptionError {
  return new InvalidOptionError("url", problem, FORM);
}
