import { InvalidOptionError } from "../../core/errors.js";
import { decode, type Host, parseHosts } from "../../engine-kit/hosts.js";

const FORM = "zookeeper://[user:password@]host[:port],host[:port],…[/base/path] or zookeeper+tls://…";
const PORT = 2181;

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
  const digest = user === undefined ? undefined : decode(user, wrong);
  if (digest !== undefined && !/^[^:]+:./s.test(digest)) throw wrong("it has a user without a password");
  const base = decode(path, wrong).replace(/\/$/, "");
  return {
    hosts: parseHosts(hostList, PORT, wrong),
    secure: secure !== undefined,
    digest,
    base: base === "" ? undefined : base,
  };
}

function wrong(problem: string): InvalidOptionError {
  return new InvalidOptionError("url", problem, FORM);
}
