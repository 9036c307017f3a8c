export type { GlideClient, IoredisClient, NodeRedisClient, RedisClient } from "./driver.js";
export { openRedis, type RedisUrlOptions, redisEngine } from "./open.js";
export type { RedisOptions } from "./options.js";
