// One call, three ways, for the benchmark: bare, under the lock by hand, and by the decorator.
import "reflect-metadata";
import { Injectable } from "@nestjs/common";
import { Test } from "@nestjs/testing";
import type { Locks } from "holdfast";
import { currentHold, HoldfastModule, InjectLocks, Lock } from "holdfast/nest";

@Injectable()
class Service {
  @InjectLocks() private readonly locks!: Locks;

  async bare(id: number): Promise<number> {
    return id;
  }

  using(id: number): Promise<number> {
    return this.locks.mutex(`invoice:${id}`).using(() => this.bare(id));
  }

  @Lock((id: number) => `invoice:${id}`)
  async decorated(id: number): Promise<number> {
    return id;
  }

  @Lock((id: number) => `invoice:${id}`)
  async asking(_id: number): Promise<number> {
    return currentHold().token;
  }
}

const app = await Test.createTestingModule({ imports: [HoldfastModule.forTesting()], providers: [Service] }).compile();
export const service = app.get(Service);
export const close = (): Promise<void> => app.close();
