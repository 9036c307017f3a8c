export type Host = { readonly host: string; readonly port: number };

const PORT_MAX = 65_535;

/** `host[:port],host[:port],…`, IPv6 addresses in brackets: `URL` cannot take several hosts apart. `wrong` makes the error. */
export function parseHosts(list: string, defaultPort: number, wrong: (problem: string) => Error): readonly Host[] {
  return list.split(",").map((text) => {
    const [, bracketed, plain, digits] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
    const host = bracketed ?? plain;
    const port = digits === undefined ? defaultPort : Number(digits);
    if (host === undefined) throw wrong("a host in it cannot be read");
    if (port < 1 || port > PORT_MAX) throw wrong(`a port in it is not from 1 to ${PORT_MAX}`);
    return { host, port };
  });
}

/** User and password, undefined where they are missing or empty. */
export function parseUser(text: string | undefined, wrong: (problem: string) => Error) {
  const [username, password] = (text ?? "").split(/:(.*)/s, 2).map((part) => decode(part, wrong));
  return { username: username || undefined, password: password || undefined };
}

export function decode(text: string, wrong: (problem: string) => Error): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw wrong("a % in it is not followed by two hexadecimal digits");
  }
}

/** `host:port` as a URL has it. */
export function addressOf({ host, port }: Host): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
