import type { Commands } from "./command.js";

export const COMMANDS: Commands = {
  run: async () => (await import("./run.js")).run,
  hold: async () => (await import("./hold.js")).hold,
  elect: async () => (await import("./elect.js")).elect,
  once: async () => (await import("./once.js")).once,
  ls: async () => (await import("./ls.js")).ls,
  show: async () => (await import("./show.js")).show,
  watch: async () => (await import("./watch.js")).watch,
  stats: async () => (await import("./stats.js")).stats,
  ui: async () => (await import("./ui.js")).ui,
  release: async () => (await import("./release.js")).release,
  doctor: async () => (await import("./doctor.js")).doctor,
  completion: async () => (await import("./completion.js")).completion(COMMANDS),
};
