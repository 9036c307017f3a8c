import { pause } from "../test/servers/process.js";
import { now } from "./child.js";
import {
  all,
  type Fault,
  type FaultContext,
  FILE,
  GO_CLOCK,
  MAJORITY,
  NO_LEADER,
  NO_MEMBERS,
  ONE_SERVER,
  REMOVED,
} from "./fault.js";
import { occupy, type Rig, type Server } from "./rigs.js";

const at = <T>(list: readonly T[], n: number): T => {
  const item = list[n];
  if (item === undefined) throw new Error(`there is no item ${n}`);
  return item;
};

/** Longer than the fault takes, an election included. */
const LONG_MS = 9000;
/** A Java server on a busy machine takes its time. */
const RESTART_MS = 20_000;
const JUMP_S = 60;

/** The servers die, and whoever holds does not hear of what comes after. */
async function replace(context: FaultContext, gone: number, comes: Server): Promise<() => void> {
  for (const wire of context.holderWires) wire.stall();
  context.faultBegins();
  await at(context.rig.servers, gone).running().end();
  await context.rig.promote?.now();
  for (const wire of context.wiresTo(gone)) wire.point(comes.port);
  return () => context.holderWires.forEach((wire) => wire.heal());
}

function spareOf({ spare }: Rig): Server {
  if (spare === undefined) throw new Error("there is no spare server");
  return spare;
}

async function leaderOf({ leader }: Rig): Promise<number> {
  if (leader === undefined) throw new Error("there is no leader");
  return leader();
}

async function moveClocks(context: FaultContext, seconds: number, count: number): Promise<() => void> {
  const clocks = (context.rig.clocks ?? []).slice(0, count);
  if (context.breaks) for (const wire of context.holderWires) wire.stall();
  context.faultBegins();
  for (const clock of clocks) clock.moveTo(seconds);
  return () => context.holderWires.forEach((wire) => wire.heal());
}

export const FAULTS: readonly Fault[] = [
  {
    name: "kill",
    title: "holder killed",
    what: "SIGKILL to the holder's process",
    need: "plain",
    async run({ holder, faultBegins }) {
      faultBegins();
      await holder.kill();
      return () => {};
    },
    expected: all("freed"),
  },
  {
    name: "pause",
    title: "holder paused",
    what: "the holder checks that it holds, is stopped (SIGSTOP) past its lease before it writes, and goes on when the next has written",
    need: "plain",
    async run({ holder, faultBegins }) {
      const write = holder.ask("stopBetweenCheckAndWrite");
      await holder.until("it stops", () => holder.all("stopping").length > 0);
      faultBegins();
      return async () => {
        holder.signal("SIGCONT");
        await write;
      };
    },
    expected: all("late write"),
  },
  {
    name: "cut",
    title: "client cut off",
    what: "nothing goes through between the holder and the servers, and nobody is told",
    need: "plain",
    async run({ holderWires, faultBegins }) {
      faultBegins();
      for (const wire of holderWires) wire.stall();
      return () => holderWires.forEach((wire) => wire.heal());
    },
    expected: all("passed on", { sqlite: FILE }),
  },
  {
    name: "late-renewals",
    title: "answers delayed",
    what: "the servers hear the holder at once, and their answers take longer than its lease; for SQLite, somebody else keeps the file busy",
    need: "plain",
    async run({ rig, holder, holderWires, leaseMs, faultBegins }) {
      faultBegins();
      if (rig.file !== undefined) {
        const leave = occupy(rig.file);
        await holder.until("it is told", () => holder.all("lost").length > 0);
        leave();
        return () => {};
      }
      for (const wire of holderWires) wire.delay(leaseMs * 1.5);
      return () => holderWires.forEach((wire) => wire.heal());
    },
    expected: all("passed on"),
  },
  {
    name: "late-grant",
    title: "grant delayed",
    what: "the holder asks; the servers hear it at once, and their answers take longer than its lease",
    need: "plain",
    asksUnderFault: true,
    async run({ holder, others, holderWires, leaseMs, faultBegins }) {
      faultBegins();
      for (const wire of holderWires) wire.delay(leaseMs * 1.5);
      void holder.ask("take");
      // Until the store has it. Where a claim takes several questions, each answered as late, it may never come to that.
      for (const end = now() + leaseMs; now() < end; await pause(20)) {
        if ((await at(others, 0).ask<{ holders: number }>("look")).holders > 0) break;
      }
      return () => holderWires.forEach((wire) => wire.heal());
    },
    expected: all("not taken", {
      sqlite: {
        short: "no answer",
        why: "the process that asks makes the grant itself, in one transaction: no answer is under way",
      },
    }),
  },
  {
    name: "restart",
    title: "server restarted with its data",
    what: "all servers are killed and started again, with the data they had (Redis: `appendfsync always`)",
    need: "plain",
    leaseMs: RESTART_MS,
    async run({ rig, faultBegins }) {
      faultBegins();
      await Promise.all(rig.servers.map((server) => server.running().end()));
      await Promise.all(rig.servers.map((server) => server.restart()));
      return () => {};
    },
    expected: all("kept", { sqlite: FILE }),
  },
  {
    name: "restart-empty",
    title: "server restarted without its data",
    what: "a server is killed, and one without the data (a database: with empty tables) answers at its address; of a quorum one of three, all of which had the claim",
    need: "spare",
    leaseMs: LONG_MS,
    async run(context) {
      const { rig, holder, others, restartOthers } = context;
      const heal = await replace(context, rig.servers.length > 1 ? 1 : 0, spareOf(rig));
      if (context.breaks) return heal;
      heal();
      if (rig.servers.length > 1) return heal;
      // Whoever knew the old store has nothing to do with the new one.
      await holder.until("it is told", () => holder.all("lost").length > 0);
      await pause(1000);
      if (others.some((other) => other.all("granted").length > 0)) return heal;
      await restartOthers({ tokenBase: holder.all("granted")[0]?.token ?? 0 });
      return heal;
    },
    expected: all("two holders", { sqlite: FILE, quorum: "kept", zookeeper: "refused", etcd: "refused" }),
  },
  {
    name: "fail-over",
    title: "fail-over before replication",
    what: "the primary dies with a claim that its replica has not heard of, and the replica is promoted",
    need: "replica",
    leaseMs: LONG_MS,
    run: (context) => replace(context, 0, spareOf(context.rig)),
    expected: all("two holders", {
      sqlite: FILE,
      quorum: {
        short: "no replicas",
        why: "its members are primaries that know nothing of each other: see the row of the replaced member",
      },
      zookeeper: MAJORITY,
      etcd: MAJORITY,
    }),
  },
  {
    name: "clock-forward",
    title: "server clock jumps forward",
    what: `the calendar of the server (of two of three, in a quorum) jumps ${JUMP_S} s ahead; for SQLite, that of the waiting processes`,
    need: "clock",
    leaseMs: LONG_MS,
    run: (context) => moveClocks(context, JUMP_S, 2),
    expected: all("two holders", { sqlite: "kept", zookeeper: "kept", etcd: GO_CLOCK }),
  },
  {
    name: "clock-back",
    title: "server clock jumps back",
    what: `the same, ${JUMP_S} s back`,
    need: "clock",
    run: (context) => moveClocks(context, -JUMP_S, 2),
    expected: all("kept", { etcd: GO_CLOCK }),
  },
  {
    name: "member-clock",
    title: "one member's clock jumps",
    what: `the calendar of one of three servers, all of which have the claim, jumps ${JUMP_S} s ahead`,
    need: "clock",
    run: (context) => moveClocks(context, JUMP_S, 1),
    expected: all(ONE_SERVER, {
      sqlite: FILE,
      quorum: "kept",
      zookeeper: {
        short: "monotonic clock",
        why: "the leader counts sessions by its monotonic clock: see the rows above, where its calendar jumps",
      },
      etcd: GO_CLOCK,
    }),
  },
  {
    name: "member-clock-cut",
    title: "one member's clock jumps, another is out of reach",
    what: `a quorum's claim stands on two of three, because its client cannot reach the third; the calendar of one of the two jumps ${JUMP_S} s ahead`,
    need: "clock",
    leaseMs: LONG_MS,
    prepare: ({ holderWires }) => holderWires[2]?.cut(),
    run: (context) => moveClocks(context, JUMP_S, 1),
    expected: all(NO_MEMBERS, { sqlite: FILE, quorum: "two holders", zookeeper: MAJORITY, etcd: GO_CLOCK }),
  },
  {
    name: "member-restart-cut",
    title: "one member restarts empty, another is out of reach",
    what: "a quorum's claim stands on two of three, because its client cannot reach the third; one of the two is killed, and comes back without its data",
    need: "spare",
    leaseMs: LONG_MS,
    prepare: ({ holderWires }) => holderWires[2]?.cut(),
    run: (context) => replace(context, 1, spareOf(context.rig)),
    expected: all(NO_MEMBERS, {
      sqlite: FILE,
      quorum: "two holders",
      zookeeper: {
        short: "replaced member",
        why: "a follower that comes back empty is in the row of the replaced member",
      },
      etcd: REMOVED,
    }),
  },
  {
    name: "member-lost",
    title: "member lost",
    what: "one of three servers is killed (not the leader, where there is one)",
    need: (engine) => (engine === "quorum" ? "plain" : "cluster"),
    leaseMs: LONG_MS,
    async run({ rig, faultBegins }) {
      const leader = (await rig.leader?.()) ?? 0;
      const lost = at(rig.servers, (leader + 1) % rig.servers.length);
      faultBegins();
      await lost.running().end();
      return () => lost.restart();
    },
    expected: all(NO_MEMBERS, { sqlite: FILE, quorum: "kept", zookeeper: "kept", etcd: "kept" }),
  },
  {
    name: "member-replaced",
    title: "member replaced by an unsynced one",
    what: "a quorum's claim stands on two of three, because its client cannot reach the third; one of the two dies, and its replica, which missed the claim, takes its place. In ZooKeeper a follower comes back empty",
    need: (engine) => (engine === "quorum" ? "replica" : "cluster"),
    leaseMs: LONG_MS,
    prepare({ rig, holderWires }) {
      if (rig.spare !== undefined) holderWires[2]?.cut();
    },
    async run(context) {
      const { rig, faultBegins } = context;
      if (rig.spare !== undefined) return replace(context, 1, spareOf(rig));
      const lost = at(rig.servers, ((await leaderOf(rig)) + 1) % rig.servers.length);
      faultBegins();
      await lost.running().end();
      await lost.restart(true);
      return () => {};
    },
    expected: all(NO_MEMBERS, {
      sqlite: FILE,
      quorum: "two holders",
      zookeeper: "kept",
      etcd: REMOVED,
    }),
  },
  {
    name: "leader-killed",
    title: "leader killed",
    what: "SIGKILL to the leader of three servers; clients know all three",
    need: "cluster",
    leaseMs: LONG_MS,
    async run({ rig, faultBegins }) {
      const leader = at(rig.servers, await leaderOf(rig));
      faultBegins();
      await leader.running().end();
      return () => leader.restart();
    },
    expected: all(NO_LEADER, { sqlite: FILE, zookeeper: "kept", etcd: "kept" }),
  },
  {
    name: "leader-paused",
    title: "leader paused",
    what: "SIGSTOP to the leader of three servers; clients know all three",
    need: "cluster",
    leaseMs: LONG_MS,
    async run({ rig, faultBegins }) {
      const leader = at(rig.servers, await leaderOf(rig));
      faultBegins();
      leader.running().signal("SIGSTOP");
      return () => leader.running().signal("SIGCONT");
    },
    expected: all(NO_LEADER, { sqlite: FILE, zookeeper: "kept", etcd: "kept" }),
  },
  {
    name: "leader-cut",
    title: "leader cut off with its client",
    what: "the leader goes on without the two others, and the holder knows only the leader (ZooKeeper's elections go through the lab's wires here, and take longer than they do without)",
    need: "partition",
    holderKnowsOnlyLeader: true,
    async run({ rig, faultBegins }) {
      const leader = await leaderOf(rig);
      faultBegins();
      rig.isolate?.(leader);
      return () => rig.rejoin?.();
    },
    expected: all(NO_LEADER, { sqlite: FILE, zookeeper: "passed on", etcd: "passed on" }),
  },
];
