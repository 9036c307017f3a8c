import type { ConnectionOptions } from "node:tls";
import { InvalidOptionError } from "../../core/errors.js";

/** An etcd URL, taken apart. */
export type EtcdUrl = {
  readonly hosts: readonly string[];
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly tls: ConnectionOptions | undefined;
};

const FORM = "etcd://[user:password@]host[:port],host[:port],… or etcds://…";
const PORT = 2379;
const PORT_MAX = 65_535;

/** Several hosts are more than `URL` can take apart. What is wrong is told without the URL: it may hold a password. */
export function parseEtcdUrl(url: string, tls?: ConnectionOptions): EtcdUrl {
  const [, scheme = "", userInfo, hostList = ""] = /^(etcds?):\/\/(?:([^@/?#]*)@)?([^/?#]*)\/?$/i.exec(url) ?? [];
  if (scheme === "") throw wrong("it cannot be read");
  const [username, password] = (userInfo ?? "").split(/:(.*)/s, 2).map(decoded);
  return {
    hosts: hostList.split(",").map(hostOf),
    username: username || undefined,
    password: password || undefined,
    tls: tls ?? (scheme.toLowerCase() === "etcds" ? {} : undefined),
  };
}

function hostOf(text: string): string {
  const [, host, port = PORT] = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/.exec(text) ?? [];
  if (host === undefined) throw wrong("a host in it cannot be read");
  if (Number(port) < 1 || Number(port) > PORT_MAX) throw wrong(`a port in it is not from 1 to ${PORT_MAX}`);
  return `${host}:${Number(port)}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw wrong("a % in it is not followed by two hexadecimal digits");
  }
}

function wrong(problem: string): InvalidOptionError {
  return new InvalidOptionError("url", problem, FORM);
}
