// The three job queues, each with its own way to notice that a worker is gone, or without one.
import { createRequire } from "node:module";

// In a program of yours: import { Queue, Worker } from "bullmq".
const packages = createRequire(new URL("../../tools/jobs/package.json", import.meta.url));
const library = async (name) => packages(name);

const NAME = "reports";

export const QUEUES = {
  /** Its workers send heartbeats of their own: a job without one for `lockDuration` is handed to another worker. */
  async bullmq(url) {
    const { Queue, Worker } = await library("bullmq");
    const { hostname: host, port } = new URL(url);
    const connection = { host, port: Number(port || 6379), maxRetriesPerRequest: null };
    let worker;
    return {
      async add(id) {
        const queue = new Queue(NAME, { connection });
        await queue.add("report", {}, { jobId: id });
        await queue.close();
      },
      async work(handle) {
        const seconds = { lockDuration: 1000, stalledInterval: 500 }; // 30 s each by default
        worker = new Worker(NAME, (job) => handle(job.id), { connection, ...seconds, maxStalledCount: 5 });
        worker.on("error", () => {}); // such as "Missing lock": its job is somebody else's now
      },
      active: async () => [],
      close: () => worker?.close(true),
    };
  },

  /** Without heartbeats: a job is handed on when `expireInSeconds` are over, whether its worker lives or not. */
  async "pg-boss"(url) {
    const PgBoss = await library("pg-boss");
    const boss = new PgBoss({ connectionString: url, schedule: false, max: 4 });
    boss.on("error", () => {});
    await boss.start();
    await boss.createQueue(NAME);
    return {
      add: (id) => boss.send(NAME, { id }, { expireInHours: 1, retryLimit: 5 }),
      work: (handle) => boss.work(NAME, { pollingIntervalSeconds: 0.5 }, async ([job]) => handle(job.data.id)),
      async active() {
        const text = `SELECT id, data->>'id' AS report FROM pgboss.job
          WHERE name = $1 AND state = 'active' AND started_on < now() - interval '1 second'`;
        const { rows } = await boss.getDb().executeSql(text, [NAME]);
        return rows.map(({ id, report }) => ({ id: report, handBack: () => boss.fail(NAME, id) }));
      },
      close: () => boss.stop({ graceful: false, close: true }),
    };
  },

  /** Without heartbeats: a job stays with a worker that died for four hours. */
  async "graphile-worker"(url) {
    const { Logger, makeWorkerUtils, run } = await library("graphile-worker");
    const { Pool } = await library("pg");
    const pgPool = new Pool({ connectionString: url, max: 4 });
    pgPool.on("error", () => {});
    const logger = new Logger(() => () => {});
    const utils = await makeWorkerUtils({ pgPool, logger });
    await utils.migrate();
    let runner;
    return {
      add: (id) => utils.addJob(NAME, { id }, { jobKey: id }),
      async work(handle) {
        const taskList = { [NAME]: ({ id }) => handle(id) };
        runner = await run({ pgPool, logger, taskList, concurrency: 1, pollInterval: 500, noHandleSignals: true });
        runner.promise.catch(() => {});
      },
      async active() {
        const text = `SELECT key, locked_by FROM graphile_worker.jobs
          WHERE task_identifier = $1 AND locked_at < now() - interval '1 second'`;
        const { rows } = await pgPool.query(text, [NAME]);
        return rows.map(({ key, locked_by }) => ({ id: key, handBack: () => utils.forceUnlockWorkers([locked_by]) }));
      },
      async close() {
        await runner?.stop().catch(() => {});
        await utils.release();
        await pgPool.end();
      },
    };
  },
};
