import { type ConnectionOptions, createSecureContext, type SecureContext } from "node:tls";
import { InvalidOptionError } from "../core/errors.js";

const PARTS = ["ca", "cert", "key", "pfx", "crl"] as const;
const ALLOWED = "what node:tls takes; certificates and keys as PEM text, or pfx with its passphrase";
const CERTIFICATE = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/;

/**
 * Certificates and keys, checked when they are given: otherwise the first connection would fail by them, and say that no
 * server answers. OpenSSL says what it could not read, but not whose it was, and leaves out a `ca` in which it finds nothing.
 */
export function secureContextOf(tls: ConnectionOptions): SecureContext {
  // Bytes that were sent to another thread arrive as no Buffer.
  const textOf = (one: string | Uint8Array): string => (typeof one === "string" ? one : Buffer.from(one).toString());
  if (tls.ca !== undefined && ![tls.ca].flat().every((one) => CERTIFICATE.test(textOf(one)))) {
    throw new InvalidOptionError("tls.ca", "it holds no certificate", ALLOWED);
  }
  try {
    return createSecureContext(tls);
  } catch (error) {
    const { passphrase } = tls;
    const fails = (part: (typeof PARTS)[number]): boolean => {
      if (tls[part] === undefined) return false;
      try {
        createSecureContext({ [part]: tls[part], ...(passphrase === undefined ? {} : { passphrase }) });
        return false;
      } catch {
        return true;
      }
    };
    const part = PARTS.find(fails);
    const problem = `it cannot be used (${error instanceof Error ? error.message : String(error)})`;
    throw new InvalidOptionError(part === undefined ? "tls" : `tls.${part}`, problem, ALLOWED);
  }
}
