import { expect, test } from "vitest";
import { EngineRefusedError } from "../../src/core/errors.js";
import { type EtcdCluster, etcdctl, type Member, restart } from "../servers/etcd.js";
import { until } from "../servers/process.js";
import { locksOn, ownCluster, waiters } from "./etcd-rig.js";

/** Users, rights and tokens that change while locks are in use: what stays so is refused with advice, what does not is mended. */

type Guarded = {
  readonly cluster: EtcdCluster;
  readonly member: Member;
  readonly url: string;
  /** As root. */
  readonly ctl: (...args: readonly string[]) => Promise<string>;
};

async function guarded(enabled: boolean): Promise<Guarded> {
  const cluster = await ownCluster();
  const [member] = cluster.members as [Member];
  const plainly = (...args: readonly string[]): Promise<string> => etcdctl(member, ...args);
  await plainly("user", "add", "root:root");
  await plainly("user", "grant-role", "root", "root");
  await plainly("user", "add", "app:secret");
  await plainly("role", "add", "locks");
  await plainly("role", "grant-permission", "locks", "readwrite", "holdfast/", "--prefix");
  await plainly("user", "grant-role", "app", "locks");
  if (enabled) await plainly("auth", "enable");
  return {
    cluster,
    member,
    url: `etcd://app:secret@127.0.0.1:${member.port}`,
    ctl: (...args) => etcdctl(member, "--user", "root:root", ...args),
  };
}

const options = { leaseMs: 3000, callTimeoutMs: 2000 };

async function refusal(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => "not refused",
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(EngineRefusedError);
  return String(error);
}

test("authentication that is turned on under programs without a user refuses what they wait for and ask, with advice", async () => {
  const { cluster, ctl } = await guarded(false);
  const locks = await locksOn(cluster.url, options);
  const hold = await locks.mutex("m").acquire();
  const waiting = locks.mutex("m").acquire();
  await until("it waits", async () => (await waiters(locks, "m")) === 1);
  await ctl("auth", "enable");
  expect(await refusal(waiting)).toMatch(/user name is empty.*Give a user and a password/);
  expect(await refusal(locks.mutex("n").acquire())).toMatch(/Give a user and a password/);
  await until("the holder is told", () => hold.state === "lost");
}, 60_000);

test("rights that are taken away refuse what is waited for and asked, with advice", async () => {
  const { url, ctl } = await guarded(true);
  const locks = await locksOn(url, options);
  const hold = await locks.mutex("m").acquire();
  const waiting = locks.mutex("m").acquire();
  await until("it waits", async () => (await waiters(locks, "m")) === 1);
  await ctl("role", "revoke-permission", "locks", "holdfast/", "--prefix");
  expect(await refusal(waiting)).toMatch(/permission denied.*readwrite/);
  expect(await refusal(locks.mutex("n").acquire())).toMatch(/permission denied.*readwrite/);
  await until("the holder is told", () => hold.state === "lost");
}, 60_000);

test("a password that was changed is refused with advice and without showing it", async () => {
  const { url, member, ctl } = await guarded(true);
  const locks = await locksOn(url, options);
  await (await locks.mutex("m").acquire()).release();
  await ctl("user", "delete", "app");
  await ctl("user", "add", "app:another");
  await member.running.end();
  await restart(member);
  let said = "";
  await until("it is refused", async () => {
    said = String(
      await locks
        .mutex("m")
        .acquire({ waitMs: 0 })
        .catch((error: unknown) => error),
    );
    return said.includes("refused");
  });
  expect(said).toMatch(/Check the user and the password/);
  expect(said).not.toMatch(/secret/);
}, 60_000);

test("a server that forgot all tokens is asked for another one: holds, waiters and watches go on", async () => {
  const { url, member } = await guarded(true);
  const [locks, other] = [await locksOn(url, { leaseMs: 20_000, callTimeoutMs: 2000 }), await locksOn(url)];
  const [hold, theirs] = [await locks.mutex("held").acquire(), await other.mutex("m").acquire()];
  const waiting = locks.mutex("m").acquire();
  await until("it waits", async () => (await waiters(other, "m")) === 1);
  await member.running.end();
  await restart(member);
  await theirs.release();
  await (await waiting).release();
  hold.throwIfLost();
  await hold.release();
}, 60_000);
