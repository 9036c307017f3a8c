import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { type Certificate, selfSigned } from "../servers/certificate.js";
import { query as askMariadb, type MariadbServer, startMariadb } from "../servers/mariadb.js";
import { query as askPostgres, type PostgresServer, startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";

const PASSWORD = "pass word/1";
const shown = encodeURIComponent(PASSWORD);

const WRONG = [
  ["of another host", "elsewhere.example.com", undefined, /does not match/i],
  ["that has expired", "localhost", "expired", /expired/i],
] as const;

/** Certificates that nobody vouches for, and names that they do not stand for, are refused; no error shows the password. */
async function expectRefused(url: string, why: RegExp): Promise<void> {
  const said = await connect(url, { callTimeoutMs: 3000 }).then(
    async (locks) => {
      await locks.close();
      return "connected";
    },
    (error: unknown) => String(error),
  );
  expect(said).toMatch(why);
  expect(said).not.toContain(PASSWORD);
  expect(said).not.toContain(shown);
}

describe("postgres over TLS", () => {
  let certificate: Certificate;
  let server: PostgresServer;
  const url = (rest: string): string => `postgres://careful:${shown}@localhost:${server.port}/postgres?${rest}`;

  beforeAll(async () => {
    certificate = selfSigned("postgres");
    const { cert, key } = certificate;
    const settings = ["ssl=on", `ssl_cert_file=${cert}`, `ssl_key_file=${key}`, "listen_addresses=localhost"];
    server = await startPostgres(settings.flatMap((setting) => ["-c", setting]));
    await askPostgres(server.url, `CREATE ROLE careful LOGIN SUPERUSER PASSWORD '${PASSWORD}'`);
  }, 120_000);
  afterAll(async () => {
    await server?.running.stop();
    certificate?.remove();
  });

  test("by URL, with a certificate of one's own, for calls and for the listening connection", async () => {
    await using locks = await connect(url(`sslmode=verify-full&sslrootcert=${certificate.cert}`));
    await using hold = await locks.mutex("m").acquire();
    expect(hold.token).toBeGreaterThan(0);
    const text = `SELECT DISTINCT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.usename = 'careful'`;
    expect(await askPostgres(server.url, text)).toEqual([{ ssl: true }]);
  });

  test("a certificate that nobody vouches for is refused", async () => {
    await expectRefused(url("sslmode=verify-full"), /self.signed|certificate/i);
  });

  test.each(WRONG)("a certificate %s is refused", async (_, host, expired, why) => {
    certificate.issue(host, expired);
    await askPostgres(server.url, "SELECT pg_reload_conf()");
    const refused = (): Promise<void> => expectRefused(url(`sslmode=verify-full&sslrootcert=${certificate.cert}`), why);
    await until("the server shows the new certificate", () =>
      refused().then(
        () => true,
        () => false,
      ),
    );
  });
});

describe("mysql over TLS, on MariaDB", () => {
  let certificate: Certificate;
  let server: MariadbServer;
  const url = (rest: string): string => `mysql://careful:${shown}@localhost:${server.port}/?schema=tls&${rest}`;

  beforeAll(async () => {
    certificate = selfSigned("mysql");
    server = await startMariadb([`--ssl-cert=${certificate.cert}`, `--ssl-key=${certificate.key}`]);
    await askMariadb(
      server.url,
      `CREATE USER careful@'%' IDENTIFIED BY '${PASSWORD}' REQUIRE SSL; GRANT ALL ON tls.* TO careful@'%'`,
    );
  }, 120_000);
  afterAll(async () => {
    await server?.running.stop();
    certificate?.remove();
  });

  test("by URL, with a certificate of one's own, for calls and for the listening connection", async () => {
    // The user may not connect without.
    await expectRefused(url("tls=false"), /user and the password/);
    await using locks = await connect(url(`tls=true&ca=${certificate.cert}`));
    await using hold = await locks.mutex("m").acquire();
    expect(hold.token).toBeGreaterThan(0);
    expect(locks.guarantees.wake).toBe("push");
  });

  test("a certificate that nobody vouches for is refused", async () => {
    await expectRefused(url("tls=true"), /self.signed|certificate/i);
  });

  test("an authority that cannot be read, or is given without TLS, is said at once", async () => {
    await expect(connect(url("tls=true&ca=/nowhere.pem"))).rejects.toThrow(/"ca"/);
    await expect(connect(url(`ca=${certificate.cert}`))).rejects.toThrow(/"ca"/);
  });

  test.each(WRONG)("a certificate %s is refused", async (_, host, expired, why) => {
    certificate.issue(host, expired);
    await askMariadb(server.url, "FLUSH SSL");
    await expectRefused(url(`tls=true&ca=${certificate.cert}`), why);
  });
});
