// What can be mutated, and which tests judge it.
//
//   stryker  TypeScript that is tested in one process: `files`, judged by `tests` in this order. `seeds` is how many schedules the
//            simulations run: a mutant that forty do not show is shown by a rule or not at all, and each is run again for
//            each mutant. `testMs` ends a test whose promise never settles.
//   own      Lua, SQL, and TypeScript that talks to a server: `files`, judged by `runs` in this order, the fastest first.
//            Each is the arguments of one `vitest run`; one whose file does not exist is left out. A mutant of TypeScript is
//            judged by those tests alone that reach it, and by `typescript` too: what only the client's side decides. `built`: the
//            tests run what is built, in processes of their own, so all of them judge, and a mutant is made there too.

const NEEDS_NO_STORE =
  "abort-signals,barrier,burst,cancelling,cells,claim-limits,clock,closing,conformance-kit,counter,deadlines,deadlock,draining,election,errors,events,extending,handing-over,health,holding,job,latch,losing,memory,multi,mutex,options,owners,re-entry,read-write,register,releasing,renewing,renew-loop,renew-slow,semaphore,striped,ticks,tokens,tracing,waiting,warnings,worker-renewals";
const RECIPES =
  "barrier,burst,cells,closing,counter,deadlock,deadlock-graph,election,events,holding,job,latch,multi,mutex,options,re-entry,read-write,releasing,semaphore,striped,tokens";
const MEMORY = ["test/conformance/memory.test.ts", "test/simulation/memory.test.ts"];

const ON_THE_CLIENT_OF_SQL = [
  [
    "lock-table",
    "roll-back",
    "sql-batches",
    "sql-drivers",
    "sql-listening",
    "sql-migrations",
    "sql-opening",
    "sql-rows",
    "sql-servers",
  ].map((name) => `test/unit/${name}.test.ts`),
  ["sql-batches", "sql-cells", "sql-roll-back", "sql-warnings"].map((name) => `test/faults/${name}.test.ts`),
  ["test/faults/sql-tls.test.ts", "test/faults/credentials.test.ts", "test/conformance/drivers.test.ts"],
];

const onServer = (engine, more) => ({
  files: [`src/engines/${engine}/**/*.ts`, "src/queue/*.ts"],
  runs: [
    [
      "test/unit/queue.test.ts",
      ...["", "-driver", "-leases", "-messages", "-nodes", "-snapshots", "-watches", "-wire"].map(
        (part) => `test/unit/${engine}${part}.test.ts`,
      ),
    ],
    [`test/conformance/${engine}-virtual.test.ts`, `test/conformance/${engine}-time.test.ts`],
    [`test/faults/${engine}-rules.test.ts`],
    ...more,
  ],
});

export const TARGETS = {
  core: {
    what: "waiting, renewing, holds, events, options, errors",
    stryker: {
      files: ["src/core/*.ts", "src/locks.ts"],
      tests: [
        `test/unit/{${NEEDS_NO_STORE},silence}.test.ts`,
        "tools/mutate/judges/hand-over.test.ts",
        ...MEMORY,
        // Last, because it keeps thousands of holds and takes half a minute: only what passes the others is judged by it.
        "test/unit/overload.test.ts",
      ],
      seeds: 40,
      testMs: 10_000,
    },
  },
  worker: {
    what: "the thread that renews for another (renewIn)",
    own: {
      files: ["src/renew-in-worker.ts", "src/renew-worker.ts"],
      runs: [["test/process/renew-worker.test.ts"], ["test/process/renew-in-worker.test.ts"]],
      built: true,
    },
  },
  recipes: {
    what: "mutex to election, on the memory engine",
    stryker: {
      files: ["src/recipes/*.ts"],
      tests: [`test/unit/{${RECIPES}}.test.ts`, ...MEMORY],
      seeds: 20,
      testMs: 10_000,
    },
  },
  memory: {
    what: "the reference engine",
    stryker: {
      files: ["src/engines/memory/*.ts"],
      // Where SQLite is compared with this engine, the mutant is in one of the two; in its own comparison it is in both.
      tests: [
        "test/unit/{memory,waiting,counter,striped}.test.ts",
        ...MEMORY,
        "test/conformance/sqlite-virtual.test.ts",
      ],
      seeds: 40,
      testMs: 10_000,
    },
  },
  fence: {
    what: "tokens, memory, files, HTTP and SQLite in process; the other resources on their servers",
    stryker: {
      files: ["src/fence/{column,files,http,memory,token}.ts"],
      tests: [
        "test/fence/{fence,files,files-model,http}.test.ts",
        "test/unit/fence*.test.ts",
        "tools/mutate/judges/fence.test.ts",
      ],
      seeds: 40,
      testMs: 10_000,
    },
    own: {
      files: ["src/fence/{etcd,redis,sql,zookeeper}.ts"],
      runs: [
        ["test/fence/fence.test.ts"],
        ["test/fence/rule.test.ts", "test/fence/redis.test.ts", "test/fence/zookeeper.test.ts"],
        ["test/fence/kinds.test.ts"],
        ["test/fence/property.test.ts"],
      ],
    },
  },
  sqlite: {
    what: "the engine on a file, and its statements",
    stryker: {
      files: ["src/engines/sqlite/**/*.ts"],
      tests: [
        // First, because all share one module graph: it stands in for node:fs, which whatever is loaded before does not see.
        "test/unit/sqlite-mail.test.ts",
        "test/unit/sqlite*.test.ts",
        // Not sqlite-plain: it edits the sources as they are written, and Stryker has rewritten them.
        "test/simulation/sqlite.test.ts",
        "test/conformance/sqlite-virtual.test.ts",
      ],
      seeds: 10,
      testMs: 30_000,
    },
    own: {
      files: ["src/engines/sqlite/sql/*.sql"],
      runs: [
        ["test/conformance/sqlite-virtual.test.ts"],
        ["test/unit/sqlite.test.ts", "test/unit/sqlite-mail.test.ts"],
        ["test/simulation/sqlite.test.ts", "test/simulation/sqlite-plain.test.ts"],
        ["test/conformance/sqlite.test.ts"],
      ],
    },
  },
  quorum: {
    what: "the vote over members, in the simulation",
    stryker: {
      files: ["src/engines/quorum/*.ts"],
      tests: [
        "test/unit/quorum*.test.ts",
        "test/simulation/quorum-reference.test.ts",
        "test/simulation/quorum-truth.test.ts",
        "test/simulation/quorum-turns.test.ts",
        "test/conformance/quorum-virtual.test.ts",
        "test/simulation/quorum-split-votes.test.ts",
        "test/simulation/quorum.test.ts",
        "test/simulation/quorum-limits.test.ts",
      ],
      seeds: 200,
      testMs: 30_000,
    },
  },
  redis: {
    what: "the Lua scripts and the engine around them",
    own: {
      files: ["src/engines/redis/lua/**/*.lua", "src/engines/redis/**/*.ts"],
      runs: [
        ["test/conformance/redis-virtual.test.ts"],
        ["test/conformance/redis-paths.test.ts"],
        [
          "test/unit/redis.test.ts",
          "test/unit/redis-calls.test.ts",
          "test/unit/redis-drivers.test.ts",
          "test/unit/redis-engines.test.ts",
          "test/unit/redis-pushes.test.ts",
          "test/unit/redis-replaced.test.ts",
          "test/unit/redis-servers.test.ts",
          "test/faults/redis-plain.test.ts",
          "test/faults/redis-redisson.test.ts",
        ],
        ["test/conformance/redis.test.ts", "-t", "single, "],
        ["test/faults/redis.test.ts", "test/faults/redis-answers.test.ts", "test/faults/redis-order.test.ts"],
        [
          "test/faults/redis-silence.test.ts",
          "test/faults/redis-connections.test.ts",
          "test/faults/redis-full.test.ts",
        ],
      ],
      typescript: [
        ["test/faults/redis-sentinel.test.ts", "test/faults/redis-cluster.test.ts", "test/faults/redis-tls.test.ts"],
        ["test/faults/layout-version.test.ts", "test/faults/credentials.test.ts", "test/conformance/drivers.test.ts"],
      ],
    },
  },
  postgres: {
    what: "the newest definition of each function, and the engine around them",
    own: {
      files: ["src/engines/postgres/{migrations,sql}/*.sql", "src/engines/postgres/**/*.ts", "src/sql/*.ts"],
      runs: [
        ["test/conformance/sql-virtual.test.ts", "-t", "postgres"],
        ["test/faults/sql-batches.test.ts", "-t", "PostgreSQL"],
        ["test/conformance/postgres.test.ts", "-t", "^(?!.*(pgbouncer|PgBouncer))"],
        ["test/faults/postgres.test.ts", "test/faults/fractions.test.ts"],
        ["test/faults/sql-names.test.ts", "test/faults/sql-refusals.test.ts", "test/faults/sql-settings.test.ts"],
        ["test/faults/sql-migrations.test.ts", "test/faults/sql-ownership.test.ts"],
        ["test/faults/sql-silence.test.ts", "test/faults/sql-cut.test.ts"],
      ],
      typescript: ON_THE_CLIENT_OF_SQL,
    },
  },
  mysql: {
    what: "the newest definition of each procedure, and the engine around them",
    own: {
      files: ["src/engines/mysql/{migrations,sql}/*.sql", "src/engines/mysql/**/*.ts", "src/sql/*.ts"],
      runs: [
        ["test/conformance/sql-virtual.test.ts", "-t", "mysql"],
        ["test/faults/sql-batches.test.ts", "-t", "MariaDB"],
        ["test/conformance/mysql.test.ts"],
        ["test/faults/mysql.test.ts", "test/faults/fractions.test.ts"],
        ["test/faults/sql-names.test.ts", "test/faults/sql-refusals.test.ts", "test/faults/sql-settings.test.ts"],
        ["test/faults/sql-migrations.test.ts", "test/faults/sql-ownership.test.ts"],
        ["test/faults/sql-silence.test.ts", "test/faults/sql-cut.test.ts"],
      ],
      typescript: [...ON_THE_CLIENT_OF_SQL, ["test/faults/galera.test.ts"]],
    },
  },
  etcd: {
    what: "the engine and its wire",
    own: onServer("etcd", [
      ["test/faults/etcd-slots.test.ts", "test/faults/etcd-wire.test.ts"],
      ["test/conformance/etcd.test.ts"],
      ["test/faults/etcd.test.ts"],
      ["test/faults/etcd-silence.test.ts", "test/faults/etcd-fixed.test.ts", "test/faults/etcd-auth.test.ts"],
      ["test/faults/etcd-cluster.test.ts", "test/faults/etcd-space.test.ts", "test/faults/etcd-start.test.ts"],
      ["test/faults/etcd-tls.test.ts"],
    ]),
  },
  zookeeper: {
    what: "the engine and its wire",
    own: onServer("zookeeper", [
      ["test/faults/zookeeper-requests.test.ts"],
      ["test/faults/zookeeper-crossings.test.ts"],
      ["test/faults/zookeeper-frames.test.ts", "test/faults/zookeeper-wire.test.ts"],
      ["test/conformance/zookeeper.test.ts"],
      [
        "test/faults/zookeeper.test.ts",
        "test/faults/zookeeper-loose-ends.test.ts",
        "test/faults/zookeeper-refusals.test.ts",
      ],
      [
        "test/faults/zookeeper-cuts.test.ts",
        "test/faults/zookeeper-silence.test.ts",
        "test/faults/zookeeper-clock.test.ts",
      ],
      ["test/faults/zookeeper-ensemble.test.ts", "test/faults/zookeeper-went-back.test.ts"],
      ["test/faults/zookeeper-tls.test.ts"],
    ]),
  },
  cli: {
    what: "the command line",
    own: {
      files: ["src/cli/*.ts"],
      runs: [
        ["test/unit/cli-words.test.ts", "test/unit/supervise.test.ts"],
        ["completion", "hostile-names", "secrets"].map((name) => `test/process/cli/${name}.test.ts`),
        ["doctor", "hold-elect-once", "ls-show-watch-release", "run"].map((name) => `test/process/cli/${name}.test.ts`),
        ["docs", "loss", "runbook", "stores", "ui"].map((name) => `test/process/cli/${name}.test.ts`),
      ],
      built: true,
    },
  },
};
