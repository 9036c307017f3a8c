// A registry that serves only this platform's binaries leaves the other platforms' optional packages out of
// package-lock.json, and `npm ci` refuses a lock file with holes. This writes the missing entries: name and version as the
// parent demands them, and the platform that their names say. They are never fetched here, so they have no checksum.
// The lock files of tools/* are completed too.
//
//   node scripts/complete-lockfile.mjs [--check]
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "..");
const FILES = [
  "package-lock.json",
  ...readdirSync(join(ROOT, "tools")).map((tool) => `tools/${tool}/package-lock.json`),
];
const OSES = ["android", "darwin", "freebsd", "linux", "netbsd", "openbsd", "openharmony", "sunos", "win32", "aix"];
const CPUS = ["arm64", "arm", "x64", "ia32", "ppc64", "riscv64", "s390x", "loong64", "wasm32"];

function missingOf(lock) {
  const missing = [];
  for (const { optionalDependencies = {}, dev } of Object.values(lock.packages)) {
    for (const [name, version] of Object.entries(optionalDependencies)) {
      const words = name.split(/[^a-z0-9]+/);
      const os = OSES.filter((one) => words.includes(one));
      const cpu = CPUS.filter((one) => words.includes(one));
      if (lock.packages[`node_modules/${name}`] || !/^\d/.test(version) || os.length + cpu.length === 0) continue;
      const libc = ["musl", "musleabihf"].some((word) => words.includes(word)) ? ["musl"] : [];
      missing.push([
        `node_modules/${name}`,
        {
          version,
          ...(cpu.length > 0 ? { cpu } : {}),
          ...(dev ? { dev } : {}),
          ...(libc.length > 0 ? { libc } : {}),
          optional: true,
          ...(os.length > 0 ? { os } : {}),
        },
      ]);
    }
  }
  return missing;
}

for (const file of FILES.filter((path) => existsSync(join(ROOT, path)))) {
  const lock = JSON.parse(readFileSync(join(ROOT, file), "utf8"));
  const missing = missingOf(lock);
  if (missing.length === 0) continue;
  if (process.argv.includes("--check")) {
    console.error(`${file} lacks ${missing.length} optional packages: run node scripts/complete-lockfile.mjs`);
    process.exitCode = 1;
    continue;
  }
  const root = Object.entries(lock.packages).filter(([path]) => path === "");
  const rest = Object.entries(lock.packages).filter(([path]) => path !== "");
  lock.packages = Object.fromEntries([...root, ...[...rest, ...missing].toSorted(([a], [b]) => (a < b ? -1 : 1))]);
  writeFileSync(join(ROOT, file), `${JSON.stringify(lock, null, 2)}\n`);
  console.log(`${file}: added ${missing.length} optional packages of other platforms`);
}
