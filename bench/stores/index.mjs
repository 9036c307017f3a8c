// The stores that are measured, all in one shape, and on each the ways to hold a mutex, all in one shape:
//
//   store.start({ counting, onDisk }) -> { at, stop, roundTrip?, requests? }
//     onDisk     databases: data on a disk, not in memory
//     at         what a contestant needs to find the server: plain data, so that it can be handed to another process
//     roundTrip  { name, run }: the cheapest question to the server
//     requests   how many requests the server has had so far; only when started with `counting`, which may slow it down
//   store.contestants[name] = { open, not?, waiters? }
//     open(at)   -> { take, close }: take(name) waits until the mutex is ours and gives back a function that releases it
//     not        why a measure does not apply, by measure
//     waiters    how many may wait at most
import { etcd } from "./etcd.mjs";
import { memory } from "./memory.mjs";
import { mysql } from "./mysql.mjs";
import { postgres } from "./postgres.mjs";
import { quorum } from "./quorum.mjs";
import { redis } from "./redis.mjs";
import { sqlite } from "./sqlite.mjs";
import { zookeeper } from "./zookeeper.mjs";

export const STORES = { memory, sqlite, redis, quorum, postgres, mysql, zookeeper, etcd };
