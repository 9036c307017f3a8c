import type { Reporter, TestCase } from "vitest/node";

/** Says why a test failed when it does: vitest says so at the end of a run, which takes half an hour and may never come. */
export default class FailuresAtOnce implements Reporter {
  onTestCaseResult(test: TestCase): void {
    const { state, errors } = test.result();
    if (state !== "failed") return;
    const why = (errors ?? []).map(({ message, stack, diff }) => [stack ?? message, diff].join("\n")).join("\n");
    console.log(`\nfailed: ${test.module.relativeModuleId} > ${test.fullName}\n${why}\n`);
  }
}
