import { holdfast } from "./holdfast.mjs";

const mutexes = new Map();

const asyncMutex = {
  async open() {
    const { Mutex } = await import("async-mutex");
    return {
      take(name) {
        if (!mutexes.has(name)) mutexes.set(name, new Mutex());
        return mutexes.get(name).acquire();
      },
      close() {},
    };
  },
};

const not = {
  waiting: "no server",
  crash: "one process: its waiters end with it",
};

export const memory = {
  processes: 1,
  start: async () => ({ at: { url: "memory:bench" }, stop() {} }),
  contestants: { holdfast: { ...holdfast, not }, "async-mutex": { ...asyncMutex, not } },
};
