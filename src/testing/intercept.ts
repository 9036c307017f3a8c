import type { Cell, CellAnswer, Cells, CellWrite } from "../core/cells.js";
import type {
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../core/engine.js";

/** Each hook gets the real call to make, or not to make, when and as often as it likes. */
export type Hooks = {
  claim?(call: () => Promise<ClaimAnswer>, claim: ClaimRequest): Promise<ClaimAnswer>;
  release?(call: () => Promise<ReleaseAnswer>, request: ReleaseRequest): Promise<ReleaseAnswer>;
  renew?(
    call: () => Promise<readonly RenewAnswer[]>,
    requests: readonly RenewRequest[],
  ): Promise<readonly RenewAnswer[]>;
  resize?(call: () => Promise<"resized" | "refused" | "gone">, ref: ClaimRef): Promise<"resized" | "refused" | "gone">;
  cellRead?(call: () => Promise<Cell>, name: string): Promise<Cell>;
  cellWrite?(call: () => Promise<CellAnswer>, write: CellWrite): Promise<CellAnswer>;
  push?(deliver: () => void, event: EngineEvent): void;
};

/** An engine with somebody in the wire. Hooks may be changed while it is in use. */
export function intercept(engine: Engine, hooks: Hooks): Engine {
  return {
    kind: engine.kind,
    get guarantees() {
      return engine.guarantees;
    },
    leaseMinMs: engine.leaseMinMs,
    resends: engine.resends ?? false,
    reserves: engine.reserves ?? false,
    cells: engine.cells === null ? null : interceptCells(engine.cells, hooks),
    ...(engine.latches === undefined ? {} : { latches: interceptCells(engine.latches, hooks) }),
    async claim(claim) {
      const call = (): Promise<ClaimAnswer> => engine.claim(claim);
      return hooks.claim ? hooks.claim(call, claim) : call();
    },
    async release(request) {
      const call = (): Promise<ReleaseAnswer> => engine.release(request);
      return hooks.release ? hooks.release(call, request) : call();
    },
    async renew(requests) {
      const call = (): Promise<readonly RenewAnswer[]> => engine.renew(requests);
      return hooks.renew ? hooks.renew(call, requests) : call();
    },
    async resize(ref, units) {
      const call = (): Promise<"resized" | "refused" | "gone"> => engine.resize(ref, units);
      return hooks.resize ? hooks.resize(call, ref) : call();
    },
    setCapacity: (name, from, to) => engine.setCapacity(name, from, to),
    listen: (listener) =>
      engine.listen((event) => {
        const deliver = (): void => listener(event);
        if (hooks.push) hooks.push(deliver, event);
        else deliver();
      }),
    inspect: (filter) => engine.inspect(filter),
    ...(engine.serverInfo === undefined ? {} : { serverInfo: () => (engine as Required<Engine>).serverInfo() }),
    [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
  };
}

function interceptCells(cells: Cells, hooks: Hooks): Cells {
  return {
    async read(name) {
      const call = (): Promise<Cell> => cells.read(name);
      return hooks.cellRead ? hooks.cellRead(call, name) : call();
    },
    async write(write) {
      const call = (): Promise<CellAnswer> => cells.write(write);
      return hooks.cellWrite ? hooks.cellWrite(call, write) : call();
    },
    watch: (name, listener) => cells.watch(name, listener),
  };
}
