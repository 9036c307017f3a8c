export type { ZooKeeperDriver } from "./driver.js";
export { openZookeeper, zookeeperClient, zookeeperEngine } from "./open.js";
export type { ZooKeeperOptions, ZooKeeperUrlOptions } from "./options.js";
