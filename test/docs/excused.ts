import { type Block, pages } from "./blocks.js";

/** A block that is not run: where it stands, words of it, and why. It is compiled, unless even that is not possible. */
type Excuse = { readonly page: string; readonly words: string; readonly reason: string; readonly compiles?: false };

export const EXCUSED: readonly Excuse[] = [
  ...pages()
    .filter((page) => page.startsWith("README"))
    .map((page) => ({
      page,
      words: "npm ci",
      reason: "it would replace the packages under the running tests; .ci/run does just this",
    })),
  {
    page: "docs/reference/cli.md",
    words: "",
    reason: "process/cli/docs.test.ts runs every command of it, with what it needs",
  },
  {
    page: "docs/live.md",
    words: "holdfast ui",
    reason: "goes on until somebody ends it; process/cli/ui.test.ts does",
  },
  {
    page: "docs/engines/redis.md",
    words: "redis+sentinel://",
    reason: "needs Sentinels and replicas; faults/redis-sentinel.test.ts has them",
  },
  {
    page: "docs/fencing.md",
    words: "await fencedMulti(",
    reason: "needs a client of ZooKeeper; the tests in test/fence have them",
  },
  {
    page: "docs/nest.md",
    words: "",
    reason: "needs Nest, and decorators; process/nest.test.ts compiles and runs it",
    compiles: false,
  },
  {
    page: "docs/cron.md",
    words: '"node-cron"',
    reason: "needs node-cron; process/nest.test.ts compiles and runs it",
    compiles: false,
  },
  {
    page: "docs/migrate-once.md",
    words: "",
    reason: "needs the packages of tools/orms; process/migrate-once.test.ts runs it",
    compiles: false,
  },
  {
    page: "docs/orms.md",
    words: "",
    reason: "needs the packages of tools/orms; process/orms.test.ts runs it",
    compiles: false,
  },
  {
    page: "docs/internals/writing-an-engine.md",
    words: "my-engine.test.ts",
    reason: "two minutes, one case after another; conformance/memory.test.ts makes the same calls",
  },
  {
    page: "docs/internals/writing-an-engine.md",
    words: "this store keeps no queue",
    reason: "needs a store without a queue; conformance/quorum.test.ts excuses this case so",
  },
];

export const excuseOf = ({ page, code }: Block): Excuse | undefined =>
  EXCUSED.find((excuse) => excuse.page === page && code.includes(excuse.words));

const SERVERS = /\b(?:rediss?|redis\+\w+|redlock|postgres|postgresql|mysql|mariadb|etcds?|zookeeper):\/\//;

export const needsServer = ({ code }: Block): boolean => SERVERS.test(code);
