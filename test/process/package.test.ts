import { type ExecFileSyncOptionsWithStringEncoding, execFile, execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");
const COMPILERS = join(ROOT, "test/consumers/typescript");
const run = promisify(execFile);

type Packed = {
  readonly filename: string;
  readonly files: readonly { readonly path: string; readonly size: number }[];
};

// What a user gets: the tarball, in an empty folder, with nothing else and no registry to ask.
const folder = mkdtempSync(join(tmpdir(), "holdfast-package-"));
const env = { ...process.env, HOLDFAST_URL: undefined, XDG_STATE_HOME: join(folder, "state") };
let packed: Packed;

beforeAll(() => {
  const quiet: ExecFileSyncOptionsWithStringEncoding = {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
    cwd: ROOT,
  };
  const told = execFileSync("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], quiet);
  const answer = JSON.parse(told) as Packed[] | Record<string, Packed>;
  packed = Object.values(answer)[0] as Packed;
  writeFileSync(join(folder, "package.json"), '{ "private": true }');
  const install = ["install", "--offline", "--no-audit", "--no-fund", join(folder, packed.filename)];
  execFileSync("npm", install, { ...quiet, cwd: folder });
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function program(file: string, code: string, ...flags: readonly string[]): Promise<string> {
  writeFileSync(join(folder, file), code);
  const { stdout, stderr } = await run(process.execPath, [...flags, file], { cwd: folder, env, timeout: 480_000 });
  expect(stderr).toBe("");
  return stdout.trim();
}

test("it brings nothing but itself", () => {
  const installed = readdirSync(join(folder, "node_modules")).filter((name) => !name.startsWith("."));
  expect(installed).toEqual(["holdfast"]);
});

test("it works from ESM", async () => {
  const code = `import { connect } from "holdfast";
    const locks = await connect("memory:");
    console.log(await locks.mutex("a").using((hold) => hold.token > 0));
    await locks.close();`;
  expect(await program("esm.mjs", code)).toBe("true");
});

test("it works from require", async () => {
  const code = `const { connect } = require("holdfast");
    const { memoryEngine } = require("holdfast/memory");
    (async () => {
      const locks = await connect(memoryEngine());
      console.log(await locks.mutex("a").using((hold) => hold.token > 0));
      await locks.close();
    })();`;
  expect(await program("common.cjs", code)).toBe("true");
});

test("what Node.js prints of an error that nobody caught, thrown inside an engine, are short lines of our source", async () => {
  const code = `import { memoryEngine } from "holdfast/memory";
    await memoryEngine().claim({ get name() { return undefined.length; } });`;
  writeFileSync(join(folder, "uncaught.mjs"), code);
  const told = await run(process.execPath, ["uncaught.mjs"], { cwd: folder, env }).then(
    () => "",
    ({ stderr }: { stderr: string }) => stderr,
  );
  const lines = told.split("\n");
  expect(told).toContain("TypeError");
  // The engine's own frame, by the name of its class and method.
  expect(told).toMatch(/at \w*\.?claim .*holdfast.dist/);
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(300);
  const sources = readdirSync(join(folder, "node_modules/holdfast/dist"), { recursive: true, encoding: "utf8" });
  for (const path of sources.filter((file) => file.endsWith(".js"))) {
    const text = readFileSync(join(folder, "node_modules/holdfast/dist", path), "utf8");
    // Lua scripts and SQL stand in template literals, line by line as they were written.
    const longest = Math.max(...text.split("\n").map((line) => line.length));
    expect.soft(longest, path).toBeLessThan(400);
  }
});

test("its memory engine passes its own conformance suite", async () => {
  const code = `import { memoryEngine, memoryStore } from "holdfast/memory";
    import { conformanceCases, FakeClock, runCase } from "holdfast/testing";
    const clock = new FakeClock();
    const store = memoryStore(clock);
    for (const { run } of conformanceCases)
      await runCase(run, { engine: async () => memoryEngine(store), leaseStepMs: 1000, clock });
    console.log(conformanceCases.length > 50);`;
  expect(await program("conformance.mjs", code)).toBe("true");
});

test("every path that it exports can be loaded, with no client library there", async () => {
  const code = `import { readFileSync } from "node:fs";
    import { createRequire } from "node:module";
    const { exports } = JSON.parse(readFileSync("node_modules/holdfast/package.json", "utf8"));
    const require = createRequire(import.meta.url);
    for (const path of Object.keys(exports)) {
      const name = "holdfast" + path.slice(1);
      if (name.endsWith(".json") || name === "holdfast/otel" || name === "holdfast/nest") continue;
      if (Object.keys(await import(name)).length === 0) throw new Error(name + " is empty");
      if (require(name) !== require(name)) throw new Error(name);
    }
    console.log("all");`;
  expect(await program("paths.mjs", code)).toBe("all");
});

test("holdfast/nest alone needs Nest", async () => {
  const code = `import("holdfast/nest").then(() => console.log("loaded"), (error) => console.log(error.message));`;
  expect(await program("nest.mjs", code)).toContain("Cannot find package '@nestjs/common'");
});

test("only holdfast/otel needs OpenTelemetry's API", async () => {
  const code = `import("holdfast/otel").then(({ instrument }) => console.log(typeof instrument), (error) => console.log(error.message));`;
  expect(await program("otel.mjs", code)).toContain("Cannot find package '@opentelemetry/api'");
  link("@opentelemetry");
  expect(await program("otel.mjs", code)).toBe("function");
});

describe("connect() without a URL", () => {
  const code = `import { connect } from "holdfast";
    const locks = await connect();
    console.log(locks.guarantees.exclusion, await locks.mutex("a").using((hold) => hold.token > 0));
    await locks.close();`;

  test.runIf(process.versions.node.startsWith("20."))(
    "says on Node.js 20 what to install, and then works",
    async () => {
      await expect(program("bare.mjs", code)).rejects.toThrow("npm install libsql");
      for (const name of ["libsql", "@libsql", "@neon-rs", "detect-libc"]) link(name);
      expect(await program("embedded.mjs", code)).toBe("one-machine true");
    },
  );

  test("needs nothing on Node.js 24", { timeout: 180_000 }, async () => {
    writeFileSync(join(folder, "embedded24.mjs"), code);
    const words = ["-y", "-p", "node@24", "node", join(folder, "embedded24.mjs")];
    const { stdout } = await run("npx", words, { cwd: ROOT, env, timeout: 170_000 });
    expect(stdout.trim()).toBe("one-machine true");
  });
});

/** A package that a user would have installed beside it. */
function link(name: string): void {
  symlinkSync(join(ROOT, "node_modules", name), join(folder, "node_modules", name));
}

describe("types", () => {
  const place = join(folder, "types");
  beforeAll(() => {
    if (!existsSync(join(COMPILERS, "node_modules/typescript7"))) {
      execFileSync("npm", ["ci", "--no-audit", "--no-fund"], {
        cwd: COMPILERS,
        stdio: ["ignore", "ignore", "inherit"],
      });
    }
    mkdirSync(join(folder, "node_modules/@types"), { recursive: true });
    for (const name of ["@types/node", "undici-types"]) {
      symlinkSync(join(COMPILERS, "node_modules", name), join(folder, "node_modules", name));
    }
    mkdirSync(place);
    cpSync(join(COMPILERS, "program.ts"), join(place, "program.ts"));
    writeFileSync(join(place, "package.json"), '{ "type": "module" }');
  }, 120_000);

  const kinds = [
    ["nodenext", "nodenext"],
    ["esnext", "bundler"],
  ] as const;
  const compilers = ["typescript5", "typescript6", "typescript7"];
  const cases = compilers.flatMap((compiler) =>
    kinds.map(([module, resolution]) => [compiler, module, resolution] as const),
  );

  test.each(cases)(
    "a program compiles with %s, module %s",
    { timeout: 180_000 },
    async (compiler, module, resolution) => {
      const tsc = join(COMPILERS, "node_modules", compiler, "bin/tsc");
      const strict = [
        "--strict",
        "--exactOptionalPropertyTypes",
        "--noUncheckedIndexedAccess",
        "--skipLibCheck",
        "false",
      ];
      const shape = ["--module", module, "--moduleResolution", resolution, "--types", "node"];
      const level = ["--target", "es2022", "--lib", "es2022,esnext.disposable", "--noEmit"];
      const told = await run(process.execPath, [tsc, ...strict, ...shape, ...level, "program.ts"], {
        cwd: place,
      }).catch((error: { stdout?: string; message: string }) => ({ stdout: `${error.stdout}${error.message}` }));
      expect(told.stdout).toBe("");
    },
  );
});

test("it holds what it should", () => {
  const paths = packed.files.map(({ path }) => path);
  expect(
    paths.filter(
      (path) =>
        !/^(dist\/.*\.(js|d\.ts)|telemetry\/[\w-]+\.(json|yml)|package\.json|[A-Z]+(\.zh-CN)?(\.md)?)$/.test(path),
    ),
  ).toEqual([]);
  const kilobytes = packed.files.reduce((sum, { size }) => sum + size, 0) / 1000;
  console.log(`unpacked: ${Math.round(kilobytes)} kB in ${paths.length} files`);
});

describe("an import loads the core, and of the engines only the one that is imported", () => {
  test.each([
    ["holdfast", null, 66, 250],
    ["holdfast/memory", "memory", 45, 160],
    ["holdfast/redis", "redis", 70, 330],
  ])("%s", async (name, engine, filesMax, kilobytesMax) => {
    // Where coverage is measured Node.js writes down which files it ran.
    const coverage = join(folder, `loaded-${engine}`);
    const code = `import ${JSON.stringify(name)};`;
    await run(process.execPath, ["--input-type=module", "-e", code], {
      cwd: folder,
      env: { ...env, NODE_V8_COVERAGE: coverage },
    });
    const [report = ""] = readdirSync(coverage);
    const { result } = JSON.parse(readFileSync(join(coverage, report), "utf8")) as { result: { url: string }[] };
    const urls = result.map(({ url }) => url).filter((url) => url.includes("/holdfast/dist/"));
    const bytes = urls.reduce((sum, url) => sum + statSync(new URL(url)).size, 0);
    const bare = await timed("-e", "0");
    const loading = await timed("--input-type=module", "-e", code);
    console.log(
      `${name}: ${urls.length} files, ${Math.round(bytes / 1000)} kB; node with it ${loading.toFixed(0)} ms, node -e 0 ${bare.toFixed(0)} ms`,
    );
    const engines = urls.map((url) => /\/engines\/(\w+)\//.exec(url)?.[1]).filter((found) => found !== undefined);
    expect([...new Set(engines)]).toEqual(engine === null ? [] : [engine]);
    expect(urls.length).toBeLessThanOrEqual(filesMax);
    expect(bytes / 1000).toBeLessThan(kilobytesMax);
  });
});

/** The shortest of five, in ms. */
async function timed(...args: readonly string[]): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < 5; n += 1) {
    const before = performance.now();
    await run(process.execPath, [...args], { cwd: folder, env });
    times.push(performance.now() - before);
  }
  return Math.min(...times);
}
