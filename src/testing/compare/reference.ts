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

/** One request, for the engine under test and for the reference. */
export type Request =
  | { readonly verb: "claim"; readonly claim: ClaimRequest }
  | { readonly verb: "release"; readonly leave: ReleaseRequest }
  | { readonly verb: "renew"; readonly signs: readonly RenewRequest[] }
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

export async function askEngine(engine: Engine, request: Request): Promise<Outcome> {
  if (request.verb === "claim") return { verb: request.verb, answer: await engine.claim(request.claim) };
  if (request.verb === "release") return { verb: request.verb, answer: await engine.release(request.leave) };
  if (request.verb === "renew") return { verb: request.verb, answers: await engine.renew(request.signs) };
  if (request.verb === "resize") return { verb: request.verb, answer: await engine.resize(request.ref, request.units) };
  if (request.verb === "setCapacity")
    return { verb: request.verb, answer: await engine.setCapacity(request.name, request.from, request.to) };
  return { verb: request.verb, state: await stateOf(engine, request.name) };
}

/**
 * The memory engine's store as the model, one for each name: each settles a name when somebody asks for that name, and
 * so does every store, whatever else it may clean up on the way.
 */
export class Reference {
  readonly #clock: Clock;
  readonly #clients: readonly [(event: EngineEvent) => void, (event: EngineEvent) => void];
  readonly #stores = new Map<string, MemoryStore>();

  constructor(clock: Clock, pushed: (client: number, event: EngineEvent) => void) {
    this.#clock = clock;
    this.#clients = [(event) => pushed(0, event), (event) => pushed(1, event)];
  }

  ask(client: number, request: Request): Outcome {
    const push = this.#clients[client === 0 ? 0 : 1];
    if (request.verb === "claim")
      return { verb: request.verb, answer: this.#of(request.claim.name).claim(request.claim, push) };
    if (request.verb === "release")
      return { verb: request.verb, answer: this.#of(request.leave.name).release(request.leave, push) };
    if (request.verb === "renew")
      return { verb: request.verb, answers: request.signs.map((sign) => this.#of(sign.name).renew(sign)) };
    if (request.verb === "resize")
      return { verb: request.verb, answer: this.#of(request.ref.name).resize(request.ref, request.units) };
    if (request.verb === "setCapacity")
      return { verb: request.verb, answer: this.#of(request.name).setCapacity(request.name, request.from, request.to) };
    return { verb: request.verb, state: this.state(request.name) };
  }

  state(name: string): NameState | undefined {
    return [...this.#of(name).inspect(() => true)][0];
  }

  /** The token of this claim, and nothing else about it. */
  raise({ name, id }: ClaimRef, token: number): void {
    this.#of(name).renew({ name, id, leaseMs: 0, tokenAtLeast: token });
  }

  #of(name: string): MemoryStore {
    let store = this.#stores.get(name);
    if (store === undefined) this.#stores.set(name, (store = new MemoryStore(this.#clock)));
    return store;
  }
}
