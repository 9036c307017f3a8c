import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { programsOf } from "./packages.js";

/** Files of a certificate that nobody vouches for but itself. */
export type Certificate = {
  readonly cert: string;
  readonly key: string;
  /** The same files again, for another host, or one that has expired. */
  readonly issue: (host: string, expired?: "expired") => void;
  readonly remove: () => void;
};

/** What `openssl ca` wants to know; the certificate signs itself. */
const configOf = (folder: string, host: string): string => `
[ca]
default_ca = own
[own]
database = ${folder}/index
serial = ${folder}/serial
new_certs_dir = ${folder}
default_md = sha256
policy = any
x509_extensions = names
[any]
commonName = supplied
[names]
subjectAltName = DNS:${host},IP:127.0.0.1
basicConstraints = CA:true
`;

/** For localhost. `user`: who runs the server, where that is not whoever runs the tests. */
export function selfSigned(user?: string): Certificate {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-tls-"));
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const { openssl = "" } = programsOf("OpenSSL");
  const run = (...args: readonly string[]): void => void execFileSync(openssl, args, { stdio: "ignore" });
  const issue = (host: string, expired?: "expired"): void => {
    const [config, request] = [join(folder, "config"), join(folder, "request.pem")];
    writeFileSync(config, configOf(folder, host));
    writeFileSync(join(folder, "index"), "");
    run("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", `/CN=${host}`);
    // A day of long ago; else from yesterday on, for two days.
    const at = (days: number): string =>
      new Date(Date.now() + days * 86_400_000).toISOString().replace(/[-:T]|\.\d+/g, "");
    const [from, to] = expired === undefined ? [at(-1), at(1)] : [at(-3), at(-2)];
    const signed = ["-selfsign", "-keyfile", key, "-in", request, "-out", cert, "-startdate", from, "-enddate", to];
    run("ca", "-batch", "-notext", "-rand_serial", "-config", config, ...signed);
    if (user !== undefined && process.getuid?.() === 0) execFileSync("chown", ["-R", `${user}:`, folder]);
  };
  issue("localhost");
  return { cert, key, issue, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
