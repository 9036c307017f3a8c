// The lock libraries of this folder, for whoever stands outside of it: test/servers/peers.ts.
export const libraries = {
  redlock4: async () => (await import("redlock4")).default,
  async redlock5() {
    const { default: module } = await import("redlock5");
    return module.default ?? module;
  },
  redisSemaphore: () => import("redis-semaphore"),
  async verrou() {
    const { Verrou } = await import("@verrou/core");
    const { redisStore } = await import("@verrou/core/drivers/redis");
    return { Verrou, redisStore };
  },
};
