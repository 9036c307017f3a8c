// A whole application: requests under a lock, a cron job on every process, health. What it does is written to a log.
import "reflect-metadata";
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Controller, Get, HttpException, Injectable, Module, Param, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Cron, ScheduleModule } from "@nestjs/schedule";
import { HealthCheckService, TerminusModule } from "@nestjs/terminus";
import type { Locks } from "holdfast";
import { currentHold, currentTick, HoldfastModule, InjectLocks, Lock, locksHealth, RunOnce } from "holdfast/nest";

const { url, log, name } = JSON.parse(process.argv[2] ?? "") as { url: string; log: string; name: string };
const note = (...words: unknown[]): void => appendFileSync(log, `${words.join(" ")}\n`);

@Injectable()
class Invoices {
  @Lock((id: string) => `invoice:${id}`, { leaseMs: 6_000 })
  async charge(id: string, workMs: number): Promise<number> {
    const { token, signal } = currentHold();
    note("enter", id, token, name);
    await sleep(workMs);
    if (!signal.aborted) note("exit", id, token, name);
    return token;
  }

  @Cron("* * * * * *")
  @RunOnce({ name: "report", leaseMs: 6_000 })
  report(): void {
    note("tick", currentTick().at.getTime(), name);
  }

  @Lock("long")
  async long(): Promise<string> {
    const { draining } = currentHold();
    note("long", "begins", name);
    await new Promise((resolve) => draining.addEventListener("abort", resolve));
    await sleep(100);
    note("long", "ends", name);
    return "finished";
  }
}

@Controller()
class Api {
  constructor(
    private readonly invoices: Invoices,
    private readonly health: HealthCheckService,
    @InjectLocks() private readonly locks: Locks,
  ) {
    locks.on("queued", (event) => note("queued", event.name, name));
  }

  @Post("charge/:id")
  charge(@Param("id") id: string): Promise<number> {
    return this.invoices.charge(id, 5);
  }

  @Post("hold/:id")
  hold(@Param("id") id: string): Promise<number> {
    return this.invoices.charge(id, 60_000);
  }

  @Get("long")
  long(): Promise<string> {
    return this.invoices.long();
  }

  // The route is written below the lock here, and above it there: both are found.
  @Lock("above")
  @Get("above")
  above(): number {
    return currentHold().token;
  }

  @Get("refused")
  @Lock("below")
  refused(): number {
    throw new HttpException("a teapot", 418);
  }

  @Get("health")
  check() {
    return this.health.check([() => locksHealth(this.locks)]);
  }
}

@Module({
  imports: [
    ScheduleModule.forRoot(),
    TerminusModule,
    HoldfastModule.forRootAsync({ useFactory: async () => ({ url, graceMs: 20_000, options: { label: name } }) }),
  ],
  controllers: [Api],
  providers: [Invoices],
})
class App {}

const app = await NestFactory.create(App, { logger: false });
app.enableShutdownHooks();
await app.listen(0, "127.0.0.1");
const { port } = app.getHttpServer().address();
process.send?.({ port });
