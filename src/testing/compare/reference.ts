import type { Clock } from "../../core/clock.js";
import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import type { NameState } from "../../core/inspect.js";
import { MemoryStore } from "../../engines/memory/store.js";
import { stateOf } from "../conformance/kit.js";

/** One call of the contract, for the engine under test and for the reference. */
export type Call =
  | { readonly verb: "claim"; readonly request: ClaimRequest }
  | { readonly verb: "release"; readonly request: ReleaseRequest }
  | { readonly verb: "renew"; readonly requests: readonly RenewRequest[] }
  | { readonly verb: "resize"; readonly ref: ClaimRef; readonly units: number }
  | { readonly verb: "setCapacity"; readonly name: string; readonly from: number; readonly to: number }
  | { readonly verb: "inspect"; readonly name: string };

export type Outcome =
  | { readonly verb: "claim"; readonly answer: ClaimAnswer }
  | { readonly verb: "release"; readonly answer: ReleaseAnswer }
  | { readonly verb: "renew"; readonly answers: readonly RenewAnswer[] }
  | { readonly verb: "resize"; readonly answer: string }
  | { readonly verb: "setCapacity"; readonly answer: CapacityAnswer }
  | { readonly verb: "inspect"; readonly state: NameState | undefined };

export async function callEngine(engine: Engine, call: Call): Promise<Outcome> {
  if (call.verb === "claim") return { verb: call.verb, answer: await engine.claim(call.request) };
  if (call.verb === "release") return { verb: call.verb, answer: await engine.release(call.request) };
  if (call.verb === "renew") return { verb: call.verb, answers: await engine.renew(call.requests) };
  if (call.verb === "resize") return { verb: call.verb, answer: await engine.resize(call.ref, call.units) };
  if (call.verb === "setCapacity")
    return { verb: call.verb, answer: await engine.setCapacity(call.name, call.from, call.to) };
  return { verb: call.verb, state: await stateOf(engine, call.name) };
}

/**
 * The memory engine's store as the model, one for each name: each applies the rule of the queue to a name when somebody
 * asks for that name, and so does every store, whatever else it may clean up on the way.
 */
export class Reference {
  readonly #clock: Clock;
  readonly #clients: readonly [(event: EngineEvent) => void, (event: EngineEvent) => void];
  readonly #stores = new Map<string, MemoryStore>();

  constructor(clock: Clock, pushed: (client: number, event: EngineEvent) => void) {
    this.#clock = clock;
    this.#clients = [(event) => pushed(0, event), (event) => pushed(1, event)];
  }

  call(client: number, call: Call): Outcome {
    const push = this.#clients[client === 0 ? 0 : 1];
    if (call.verb === "claim")
      return { verb: call.verb, answer: this.#of(call.request.name).claim(call.request, push) };
    if (call.verb === "release")
      return { verb: call.verb, answer: this.#of(call.request.name).release(call.request, push) };
    if (call.verb === "renew")
      return { verb: call.verb, answers: call.requests.map((one) => this.#of(one.name).renew(one)) };
    if (call.verb === "resize")
      return { verb: call.verb, answer: this.#of(call.ref.name).resize(call.ref, call.units) };
    if (call.verb === "setCapacity")
      return { verb: call.verb, answer: this.#of(call.name).setCapacity(call.name, call.from, call.to) };
    return { verb: call.verb, state: this.state(call.name) };
  }

  state(name: string): NameState | undefined {
    return [...this.#of(name).inspect(() => true)][0];
  }

  #of(name: string): MemoryStore {
    let store = this.#stores.get(name);
    if (store === undefined) this.#stores.set(name, (store = new MemoryStore(this.#clock)));
    return store;
  }
}
