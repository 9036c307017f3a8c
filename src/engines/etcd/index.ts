export type { EtcdDriver } from "./driver.js";
export { etcdClient, etcdEngine, openEtcd } from "./open.js";
export type { EtcdOptions, EtcdUrlOptions } from "./options.js";
export { type HeldCompare, whileHeld } from "./while-held.js";
