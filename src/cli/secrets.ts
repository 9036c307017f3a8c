/** Parameters of a URL whose values are for nobody else: password, sslpassword, sentinelPassword, auth, token … */
const SECRET_KEY = /pass|pwd|secret|token|auth|cred/i;
/** Not secret by itself, but nobody's business: the file of a private key. */
const PRIVATE_KEY = /key/i;
/** Shorter ones would be found in any text. */
const SHORTEST = 4;

/** Every URL that this process was told to use. */
const urls = new Set<string>();
keepSecret(process.env.HOLDFAST_URL);

/** A store in use, whose password no message may hold. */
export function keepSecret(url: string | undefined): void {
  if (url !== undefined && url !== "") urls.add(url);
}

/** Accounts and passwords in URLs, wherever a message quotes one; also the passwords alone. */
export function hideSecrets(message: string): string {
  let text = message;
  for (const url of urls) text = text.replaceAll(url, () => withoutSecrets(url));
  // Not where a message says how a URL is written: [user:password@].
  text = hideParameters(text.replace(/([a-z][a-z0-9+.-]*:\/\/)(?!\[)[^\s/?#"']*@/gi, "$1***@"));
  for (const secret of [...urls].flatMap(secretsOf)) text = text.replaceAll(secret, "***");
  return text;
}

/** A URL that may be shown, whatever is wrong with it: without a scheme, or with an unescaped `@` or `/` in a password. */
export function withoutSecrets(url: string): string {
  const { scheme, account, rest } = partsOf(url);
  return `${scheme}${account === undefined ? "" : "***@"}${hideParameters(rest)}`;
}

function hideParameters(text: string): string {
  return text.replace(/([?&;]([^\s?&;=#"']+)=)[^\s&;#"']+/g, (all, head: string, key: string) => {
    const name = decoded(key);
    return SECRET_KEY.test(name) || PRIVATE_KEY.test(name) ? `${head}***` : all;
  });
}

/** Everything up to the last `@` counts as the account: with several hosts there may be several, and what is not escaped belongs to it. */
function partsOf(url: string): { scheme: string; account: string | undefined; rest: string } {
  // A path, and no server.
  if (/^(sqlite|memory):/i.test(url)) return { scheme: "", account: undefined, rest: url };
  const scheme = /^[a-z][a-z0-9+.-]*:\/\//i.exec(url)?.[0] ?? "";
  const at = url.lastIndexOf("@");
  if (at < scheme.length) return { scheme, account: undefined, rest: url.slice(scheme.length) };
  return { scheme, account: url.slice(scheme.length, at), rest: url.slice(at + 1) };
}

function secretsOf(url: string): string[] {
  const { scheme, account = "" } = partsOf(url);
  // One without a password may be a token; but not postgres://postgres@, whose messages would lose the word.
  const user = account !== "" && scheme.toLowerCase().startsWith(account) ? "" : account;
  const password = /:(.*)$/s.exec(account)?.[1] ?? user;
  const parameters = [...url.matchAll(/[?&;]([^\s?&;=#]+)=([^&#]+)/g)].flatMap(([, key = "", value = ""]) =>
    SECRET_KEY.test(decoded(key)) ? [value] : [],
  );
  // A driver that read such a URL in its own way shows a part of it.
  const pieces = [password, ...password.split(/[@,:/?#]/), ...parameters];
  const forms = pieces.flatMap((piece) => [piece, decoded(piece), encodeURIComponent(decoded(piece))]);
  return [...new Set(forms)].filter((form) => form.length >= SHORTEST).toSorted((a, b) => b.length - a.length);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // Not encoded: a password may have a % in it.
    return text;
  }
}
