import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openTelemetry } from "../servers/otel.js";
import { programsOf } from "../servers/packages.js";
import { freePorts, Running, until } from "../servers/process.js";
import { type RedisServer, startRedis } from "../servers/redis.js";

const ROOT = resolve(import.meta.dirname, "../..");
const ALERTS = join(ROOT, "telemetry/prometheus-alerts.yml");
const ALERT_NAMES = ["HoldfastLocksLost", "HoldfastWaitsTooLong", "HoldfastStoreUnavailable"];

type Target = { readonly expr: string };
type Dashboard = {
  readonly panels: readonly { readonly title: string; readonly targets: readonly Target[] }[];
  readonly templating: { readonly list: readonly { readonly definition?: string }[] };
};
type Rule = { readonly name: string; readonly query: string; readonly state: string; readonly health: string };

const dashboard = JSON.parse(readFileSync(join(ROOT, "telemetry/grafana-dashboard.json"), "utf8")) as Dashboard;

/** As Grafana would send it. */
const sent = (expr: string): string => expr.replaceAll("$engine", ".*").replaceAll("$__rate_interval", "5m");

await openTelemetry();
let redis: RedisServer;
let prometheus: Running | undefined;
let base = "";
let metricsPort = 0;
let program: ReturnType<typeof spawn>;
let said: AsyncIterator<string>;

beforeAll(async () => {
  redis = await startRedis();
  const ports = await freePorts(2);
  metricsPort = ports[0] ?? 0;
  base = `http://127.0.0.1:${ports[1]}`;
  program = spawn(process.execPath, ["test/process/telemetry-program.mjs", String(metricsPort), redis.url], {
    cwd: ROOT,
    stdio: ["pipe", "pipe", "inherit"],
  });
  said = createInterface({ input: program.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
  expect((await said.next()).value).toBe("ready");
  prometheus = await Running.start({
    program: programsOf("Prometheus").prometheus ?? "",
    args: (folder) => {
      const config = join(folder, "prometheus.yml");
      const lines = [
        "global: { scrape_interval: 1s, evaluation_interval: 1s }",
        `rule_files: [${JSON.stringify(ALERTS)}]`,
        `scrape_configs: [{ job_name: program, static_configs: [{ targets: ["127.0.0.1:${metricsPort}"] }] }]`,
      ];
      writeFileSync(config, `${lines.join("\n")}\n`);
      return [
        `--config.file=${config}`,
        `--storage.tsdb.path=${join(folder, "data")}`,
        `--web.listen-address=${base.slice("http://".length)}`,
      ];
    },
    ready: async () => {
      const answer = await fetch(`${base}/-/ready`);
      if (!answer.ok) throw new Error(String(answer.status));
    },
  });
}, 120_000);

afterAll(async () => {
  if (program.exitCode === null) {
    program.kill("SIGKILL");
    await once(program, "exit");
  }
  await prometheus?.stop();
  await redis.running.stop();
});

async function tell(line: string): Promise<void> {
  program.stdin?.write(`${line}\n`);
  expect((await said.next()).value).toBe(`done ${line}`);
}

async function api(
  path: string,
): Promise<{ readonly status: string; readonly error?: string; readonly data: unknown }> {
  return (await (await fetch(`${base}/api/v1/${path}`)).json()) as never;
}

async function results(expr: string): Promise<readonly { readonly metric: Record<string, string> }[]> {
  const answer = await api(`query?query=${encodeURIComponent(expr)}`);
  expect(answer.error).toBeUndefined();
  return (answer.data as { result: readonly { metric: Record<string, string> }[] }).result;
}

async function rules(): Promise<readonly Rule[]> {
  return ((await api("rules")).data as { groups: readonly { rules: readonly Rule[] }[] }).groups.flatMap(
    (one) => one.rules,
  );
}

async function ruleOf(name: string): Promise<Rule> {
  const rule = (await rules()).find((one) => one.name === name);
  if (rule === undefined) throw new Error(`no rule ${name}`);
  return rule;
}

/** Its expression answers with something, and Prometheus itself counts it as active. */
async function fires(name: string): Promise<void> {
  const { query } = await ruleOf(name);
  await until(`${name} fires`, async () => (await results(query)).length > 0, 90_000);
  await until(`${name} is active`, async () => (await ruleOf(name)).state !== "inactive", 90_000);
}

const METRIC = /holdfast_\w+(?:\(_seconds\)\?\w*)?/g;
const LABELS = new Set([
  "holdfast_engine",
  "holdfast_lock_kind",
  "holdfast_outcome",
  "holdfast_reason",
  "holdfast_lock_name",
]);

/** The metrics that an expression reads, as the exporter of Node.js writes them. */
const metricsOf = (expr: string): string[] =>
  [...expr.matchAll(METRIC)].map(([name]) => name.replace("(_seconds)?", "")).filter((name) => !LABELS.has(name));

test("the page's program, as it stands there, serves the metric that the page draws", async () => {
  const page = readFileSync(join(ROOT, "docs/telemetry.md"), "utf8");
  const [, code = ""] = /```text\n(.*?)```/s.exec(page) ?? [];
  const folder = mkdtempSync(join(tmpdir(), "holdfast-page-"));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(ROOT, join(folder, "node_modules/holdfast"));
  symlinkSync(join(ROOT, "tools/telemetry/node_modules/@opentelemetry"), join(folder, "node_modules/@opentelemetry"));
  writeFileSync(join(folder, "app.mjs"), code);
  const [port] = await freePorts(1);
  const app = spawn(process.execPath, ["app.mjs"], {
    cwd: folder,
    stdio: "inherit",
    env: { ...process.env, OTEL_EXPORTER_PROMETHEUS_PORT: String(port), OTEL_EXPORTER_PROMETHEUS_HOST: "127.0.0.1" },
  });
  try {
    const metrics = async (): Promise<string> => (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    const [, drawn = "no metric"] = /rate\((\w+)\[/.exec(page) ?? [];
    await until(`${drawn} is served`, async () => (await metrics().catch(() => "")).includes(drawn), 90_000);
  } finally {
    app.kill("SIGKILL");
    await once(app, "exit");
    rmSync(folder, { recursive: true });
  }
});

test("promtool accepts the rules", () => {
  const { promtool = "" } = programsOf("Prometheus");
  expect(execFileSync(promtool, ["check", "rules", ALERTS], { encoding: "utf8" })).toContain("3 rules found");
});

test("from a quiet program to three alerts: every rule and every panel answers", { timeout: 400_000 }, async () => {
  await tell("use");
  await until("Prometheus has scraped", async () => (await results("holdfast_lock_held")).length > 0, 90_000);
  await until("every rule was evaluated", async () => (await rules()).every(({ health }) => health === "ok"), 90_000);
  expect((await rules()).map(({ name }) => name).toSorted()).toEqual(ALERT_NAMES.toSorted());
  for (const { name, query, state } of await rules()) {
    expect([name, state, await results(query)]).toEqual([name, "inactive", []]);
  }

  // What the dashboard and the rules read is what there is.
  const written = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  const there = new Set([...written.matchAll(/^(holdfast_\w+)/gm)].map(([, name = ""]) => name));
  const panels = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  const read = [...panels, ...(await rules()).map(({ query }) => query)].flatMap(metricsOf);
  // Heartbeats have not been needed yet.
  const missing = read.filter((name) => !there.has(name) && !name.startsWith("holdfast_renewal_duration"));
  expect(missing).toEqual([]);
  const variable = dashboard.templating.list.find(({ definition }) => definition !== undefined)?.definition ?? "";
  expect(metricsOf(variable)).toEqual(["holdfast_lock_held"]);

  await tell("lose");
  await fires("HoldfastLocksLost");
  const lost = await results((await ruleOf("HoldfastLocksLost")).query);
  expect(lost.map(({ metric }) => metric)).toEqual([
    { holdfast_engine: "redis", holdfast_lock_kind: "mutex", holdfast_reason: "deadline" },
  ]);
  await tell("wait");
  await fires("HoldfastWaitsTooLong");
  await redis.running.end();
  await tell("fail");
  await fires("HoldfastStoreUnavailable");

  for (const { title, targets } of dashboard.panels) {
    for (const { expr } of targets) expect([title, (await results(sent(expr))).length]).not.toEqual([title, 0]);
  }
});
