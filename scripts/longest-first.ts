import { relative, sep } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Those that take half a minute or more on two cores: begun last, they would be waited for alone. */
const LONG: Readonly<Record<string, string>> = {
  "test/browser": "live site",
  "test/conformance": "etcd mysql postgres redis zookeeper",
  "test/faults":
    "etcd etcd-wire galera hostile mysql overload postgres quorum redis-cluster redis-silence sql-cut zookeeper zookeeper-ensemble zookeeper-others",
  "test/process": "examples nest otel package recipes renew-in-worker soak",
  "test/process/cli": "docs hold-elect-once hostile-names loss",
  "test/simulation": "quorum",
  "test/unit": "mutants",
};
const PATHS = new Set(
  Object.entries(LONG).flatMap(([folder, names]) => names.split(" ").map((name) => `${folder}/${name}.test.ts`)),
);

/** In a fresh clone nobody has measured how long files take, and vitest begins with the largest; the longest are small. */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): number =>
      Number(PATHS.has(relative(this.ctx.config.root, moduleId).split(sep).join("/")));
    const groupOf = ({ project }: TestSpecification): number => project.config.sequence.groupOrder;
    // oxlint-disable-next-line no-array-sort -- of a sequencer, which is no array.
    return (await super.sort(files)).toSorted((a, b) => groupOf(a) - groupOf(b) || isLong(b) - isLong(a));
  }
}
