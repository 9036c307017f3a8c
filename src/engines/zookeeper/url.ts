import { InvalidOptionError } from "../../core/errors.js";
import type { Host } from "./wire/connection.js";

const FORM = "zookeeper://[user:password@]host[:port],host[:port],…[/base/path] or zookeeper+tls://…";
const PORT = 2181;
const PORT_MAX = 65_535;

/** A ZooKeeper URL, taken apart. */
export type ZooKeeperUrl = {
  readonly hosts: readonly Host[];
  readonly secure: boolean;
  /** For the scheme `digest`. */
  readonly digest: string | undefined;
  readonly base: string | undefined;
};

/** Several hosts are more than `URL` can take apart. What is wrong is told without the URL: it may hold a password. */
export function parseZooKeeperUrl(url: string): ZooKeeperUrl {
  const [, secure, user, hostList = "", path = ""] =
    /^zookeeper(\+tls)?:\/\/(?:([^@/?#]*)@)?([^/?#]+)(\/[^?#]*)?$/i.exec(url) ?? [];
  if (hostList === "") throw wrong("it cannot be read");
  const digest = user === undefined ? undefined : decoded(user);
  if (digest !== undefined && !/^[^:]+:./s.test(digest)) throw wrong("it has a user without a password");
  const base = decoded(path).replace(/\/$/, "");
  return {
    hosts: hostList.split(",").map(hostOf),
    secure: secure !== undefined,
    digest,
    base: base === "" ? undefined : base,
  };
}

function hostOf(text: string): Host {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const host = bracketed ?? plain;
  const number = port === undefined ? PORT : Number(port);
  if (host === undefined) throw wrong("a host in it cannot be read");
  if (number < 1 || number > PORT_MAX) throw wrong("a port in it does not exist");
  return { host, port: number };
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
