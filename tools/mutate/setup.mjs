// Stryker forgets which test runs as soon as its body is over, and counts what clean-up code reaches as reached by no test in
// particular: all tests would judge it, and for half of the mutants that took nine tenths of the time. Here a test goes on
// until the next one begins; what a file does before its first test still belongs to none.
const NAMESPACE = "__stryker__";
globalThis[NAMESPACE] ??= {};
let current;
Object.defineProperty(globalThis[NAMESPACE], "currentTestId", {
  configurable: true,
  get: () => current,
  set: (id) => {
    current = id ?? current;
  },
});
