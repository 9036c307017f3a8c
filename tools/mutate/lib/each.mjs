// Stryker's reporter for `--verbose`: a line for each mutant as soon as it is judged, so that nobody has to wait for the end.
class Each {
  onMutantTested({ fileName, location, mutatorName, replacement, status, testsCompleted }) {
    const { line, column } = location.start;
    const tests = testsCompleted === undefined ? "" : ` after ${testsCompleted} tests`;
    const place = `${fileName.replace(`${process.cwd()}/`, "")}:${line}:${column}`;
    console.log(`${status.toLowerCase()}${tests} ${place} ${mutatorName} to ${(replacement ?? "").split("\n")[0]}`);
  }
}

export const strykerPlugins = [{ kind: "Reporter", name: "each", injectableClass: Each }];
