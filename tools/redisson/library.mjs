// node-redisson, for whoever stands outside of this folder: test/servers/redisson.ts.
export { Redisson, TimeUnit } from "node-redisson";
