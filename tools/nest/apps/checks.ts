// What the module and the decorators do inside one process, on memory. Each check prints its name.
import "reflect-metadata";
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Inject, Injectable, Module, SetMetadata } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Test } from "@nestjs/testing";
import { DrainingError, type Locks, MisuseError } from "holdfast";
import {
  currentHold,
  currentTick,
  HoldfastModule,
  InjectLocks,
  Lock,
  locksHealth,
  locksToken,
  RunOnce,
} from "holdfast/nest";

let inside = 0;
let most = 0;
async function work(): Promise<number> {
  inside += 1;
  most = Math.max(most, inside);
  await sleep(1);
  inside -= 1;
  return currentHold().token;
}

@Injectable()
class Base {
  @Lock((id: number) => `item:${id}`)
  async change(_id: number): Promise<number> {
    return work();
  }
}

@Injectable()
class Service extends Base {
  readonly prefix = "mine";
  @InjectLocks() readonly locks!: Locks;

  constructor(@InjectLocks("second") readonly second: Locks) {
    super();
  }

  @Lock("table", { readWrite: "read" })
  async read(): Promise<number> {
    return work();
  }

  @Lock("table", { readWrite: "write" })
  async write(): Promise<number> {
    return work();
  }

  @Lock("pool", { semaphore: 3 })
  async pooled(): Promise<number> {
    return work();
  }

  @Lock(function (this: Service, id: string) {
    return `${this.prefix}:${id}`;
  })
  async named(_id: string): Promise<string> {
    return currentHold().name;
  }

  @Lock("outer")
  async outer(): Promise<string[]> {
    return [currentHold().name, await this.named("inner"), currentHold().name];
  }

  @Lock("recursive")
  async recursive(depth: number): Promise<number> {
    return depth === 0 ? currentHold().token : this.recursive(depth - 1);
  }

  @Lock("busy", { store: "second", waitMs: 0 })
  async inSecond(): Promise<string> {
    return currentHold().name;
  }

  @Lock("fails")
  async fails(): Promise<never> {
    throw new TypeError("a method's mistake");
  }

  @SetMetadata("above", 1)
  @Lock("metadata")
  @SetMetadata("below", 2)
  async described(_one: string, _two: string): Promise<void> {}

  @RunOnce({ atLeastMs: 60_000 })
  tick(): string {
    return `${currentTick().token > 0}`;
  }
}

const testing = { imports: [HoldfastModule.forTesting(), HoldfastModule.forTesting("second")], providers: [Service] };
const app = await Test.createTestingModule(testing).compile();
const service = app.get(Service);

async function check(name: string, run: () => Promise<void>): Promise<void> {
  [inside, most] = [0, 0];
  await run();
  console.log(`ok ${name}`);
}

const many = <T>(run: (n: number) => Promise<T>, count = 200): Promise<T[]> =>
  Promise.all(Array.from({ length: count }, (_, n) => run(n)));

await check("calls under load do not overlap, and their tokens rise", async () => {
  const tokens = await many(() => service.change(1));
  assert.equal(most, 1);
  assert.deepEqual(
    tokens,
    [...new Set(tokens)].toSorted((a, b) => a - b),
  );
});
await check("other names do not wait", async () => {
  await many((n) => service.change(n), 20);
  assert.ok(most > 1);
});
await check("a read-write lock and a semaphore", async () => {
  await many(() => service.read(), 20);
  assert.ok(most > 1);
  [inside, most] = [0, 0];
  await many(() => service.write(), 20);
  assert.equal(most, 1);
  [inside, most] = [0, 0];
  await many(() => service.pooled(), 20);
  assert.equal(most, 3);
});
await check("names are computed with this and the arguments; the innermost hold is current", async () => {
  assert.deepEqual(await service.outer(), ["outer", "mine:inner", "outer"]);
  assert.throws(() => currentHold(), MisuseError);
  assert.throws(() => currentTick(), MisuseError);
});
await check("a method that calls itself goes on with its hold", async () => {
  assert.ok((await service.recursive(3)) > 0);
});
await check("errors pass through, and the lock is free", async () => {
  await assert.rejects(service.fails(), new TypeError("a method's mistake"));
  assert.equal(await service.locks.mutex("fails").isHeld(), false);
});
await check("a store with a name is another store", async () => {
  const hold = await service.locks.mutex("busy").acquire();
  assert.equal(await service.inSecond(), "busy");
  await hold.release();
  await using _ = await service.second.mutex("busy").acquire();
  await assert.rejects(service.inSecond(), { code: "HOLDFAST_ACQUIRE_TIMEOUT" });
  assert.equal(app.get(locksToken("second")), service.second);
});
await check("metadata above and below survives, with name and length", async () => {
  const { described } = Service.prototype;
  assert.equal(Reflect.getMetadata("above", described), 1);
  assert.equal(Reflect.getMetadata("below", described), 2);
  assert.deepEqual([described.name, described.length], ["described", 2]);
  assert.deepEqual(Reflect.getMetadata("design:paramtypes", Service.prototype, "described"), [String, String]);
});
await check("a tick runs once", async () => {
  const answers = await many(async () => service.tick(), 5);
  assert.deepEqual(
    answers.filter((answer) => answer !== undefined),
    ["true"],
  );
});
await check("wrong use is said", async () => {
  assert.throws(() => Lock("a", { readWrite: "read", semaphore: 2 }), { code: "HOLDFAST_INVALID_OPTION" });
  assert.throws(() => Lock("a", { readWrite: "both" as never }), { code: "HOLDFAST_INVALID_OPTION" });
  await assert.rejects(new Base().change(1), /Base\.change.*HoldfastModule/);
  @Module({ providers: [Base] })
  class Forgotten {}
  await assert.rejects(
    NestFactory.createApplicationContext(Forgotten, { logger: false, abortOnError: false }),
    /holdfast locks: default|Base/,
  );
});
await check("options may come from another provider", async () => {
  @Module({ providers: [{ provide: "url", useValue: "memory:" }], exports: ["url"] })
  class Settings {}
  @Injectable()
  class Reader {
    constructor(@Inject(locksToken()) readonly locks: Locks) {}
  }
  const root = { imports: [Settings], inject: ["url"], useFactory: (url: string) => ({ url }) };
  const other = await Test.createTestingModule({
    imports: [HoldfastModule.forRootAsync(root)],
    providers: [Reader],
  }).compile();
  const { locks } = other.get(Reader);
  await locks.mutex("a").using(() => {});
  assert.equal(await service.locks.mutex("a").isHeld(), false);
  await other.close();
  await assert.rejects(locks.mutex("a").acquire(), { code: "HOLDFAST_CLOSED" });
});
await check("closing the application drains: waiters leave, the holder finishes", async () => {
  @Injectable()
  class Slow {
    @InjectLocks() readonly locks!: Locks;

    @Lock("slow")
    async work(): Promise<string> {
      const { draining, signal } = currentHold();
      await new Promise((resolve) => draining.addEventListener("abort", resolve));
      await sleep(20);
      return signal.aborted ? "lost" : "finished";
    }
  }
  const imports = [HoldfastModule.forRoot({ url: "memory:", graceMs: 20_000 })];
  const other = await Test.createTestingModule({ imports, providers: [Slow] }).compile();
  const slow = other.get(Slow);
  assert.deepEqual(await locksHealth(slow.locks), { locks: { status: "up" } });
  const working = slow.work();
  const waiting = slow.work().catch((error: unknown) => error);
  await sleep(20);
  const closing = other.close();
  assert.ok((await waiting) instanceof DrainingError);
  assert.equal((await locksHealth(slow.locks, "store")).store.status, "down");
  assert.equal(await working, "finished");
  await closing;
});
await app.close();
