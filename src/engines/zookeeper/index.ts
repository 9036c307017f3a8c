export type { NativeOptions, NativeZooKeeper } from "./adapters/native.js";
export { nativeClient } from "./adapters/native.js";
export type { ZooKeeperClient } from "./client.js";
export { openZookeeper, zookeeperEngine } from "./open.js";
export type { ZooKeeperOptions, ZooKeeperUrlOptions } from "./options.js";
