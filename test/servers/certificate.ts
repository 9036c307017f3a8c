import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { programsOf } from "./packages.js";

/** Files of a certificate that nobody vouches for but itself. */
export type Certificate = {
  readonly cert: string;
  readonly key: string;
  /** The same files again, for another host. */
  readonly issue: (host: string) => void;
  readonly remove: () => void;
};

/** For localhost. `user`: who runs the server, where that is not whoever runs the tests. */
export function selfSigned(user?: string): Certificate {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-tls-"));
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const { openssl = "" } = programsOf("OpenSSL");
  const issue = (host: string): void => {
    const names = ["-subj", `/CN=${host}`, "-addext", `subjectAltName=DNS:${host},IP:127.0.0.1`];
    const made = [
      "req",
      "-x509",
      "-newkey",
      "rsa:2048",
      "-nodes",
      "-days",
      "2",
      "-keyout",
      key,
      "-out",
      cert,
      ...names,
    ];
    execFileSync(openssl, made, { stdio: "ignore" });
    if (user !== undefined && process.getuid?.() === 0) execFileSync("chown", ["-R", `${user}:`, folder]);
  };
  issue("localhost");
  return { cert, key, issue, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
