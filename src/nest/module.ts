import { type ConnectOptions, connect } from "../connect.js";
import { checkKnown } from "../core/checks.js";
import type { Engine } from "../core/engine.js";
import { memoryEngine, memoryStore } from "../engines/memory/index.js";
import type { DrainOptions, Locks } from "../locks.js";
import { DEFAULT_STORE, locksToken } from "./token.js";

/** A store: what `connect` takes, and how long holders may take to finish when the application ends. */
export interface StoreOptions {
  /** A URL, several, or an engine. Without it, as `connect()` does. */
  readonly url?: string | readonly string[] | Engine;
  readonly options?: ConnectOptions;
  /** As for `locks.drain`. */
  readonly graceMs?: number;
}

export interface RootOptions extends StoreOptions {
  /** For an application with several stores. */
  readonly store?: string;
}

export interface AsyncRootOptions {
  readonly store?: string;
  readonly imports?: unknown[];
  readonly inject?: unknown[];
  // Nest injects what `inject` says, of whatever types these are.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly useFactory: (...args: any[]) => StoreOptions | Promise<StoreOptions>;
}

/** A dynamic module of Nest, as far as it is made here. Nest's own type has more, and is not installed. */
export type HoldfastDynamicModule = {
  module: typeof HoldfastModule;
  global: true;
  // oxlint-disable-next-line typescript/no-explicit-any
  imports: any[];
  // oxlint-disable-next-line typescript/no-explicit-any
  providers: any[];
  exports: string[];
};

/** Connects when the application starts, and drains when it is closed. Global: import it once. */
// Nest knows a module by its class.
// oxlint-disable-next-line typescript/no-extraneous-class
export class HoldfastModule {
  static forRoot({ store = DEFAULT_STORE, ...options }: RootOptions): HoldfastDynamicModule {
    return moduleOf({ store, useFactory: () => options });
  }

  static forRootAsync(options: AsyncRootOptions): HoldfastDynamicModule {
    return moduleOf(options);
  }

  /** Memory that no other module shares, not even one in the same process: for tests. */
  static forTesting(store: string = DEFAULT_STORE): HoldfastDynamicModule {
    return moduleOf({ store, useFactory: () => ({ url: memoryEngine(memoryStore()), graceMs: 0 }) });
  }
}

function moduleOf({ store = DEFAULT_STORE, imports = [], inject = [], useFactory }: AsyncRootOptions) {
  const [token, shutdown] = [locksToken(store), `holdfast shutdown: ${store}`];
  const providers = [
    { provide: shutdown, inject, useFactory: async (...args: unknown[]) => Shutdown.start(await useFactory(...args)) },
    { provide: token, inject: [shutdown], useFactory: ({ locks }: Shutdown) => locks },
  ];
  return { module: HoldfastModule, global: true as const, imports, providers, exports: [token] };
}

/** Nest calls its hooks. */
class Shutdown {
  readonly locks: Locks;
  readonly #drain: DrainOptions;
  #drained: Promise<void> | null = null;

  private constructor(locks: Locks, drain: DrainOptions) {
    this.locks = locks;
    this.#drain = drain;
  }

  static async start(given: StoreOptions): Promise<Shutdown> {
    checkKnown(given, ["url", "options", "graceMs"]);
    const { url, options, ...drain } = given;
    return new Shutdown(await connect(url, options), drain);
  }

  /** Not awaited: the server closes when its requests have ended, and those that wait for a lock end by this. */
  beforeApplicationShutdown(): void {
    this.#drained = this.locks.drain(this.#drain);
    // Awaited below; until then a failure must not count as unhandled.
    this.#drained.catch(() => {});
  }

  async onApplicationShutdown(): Promise<void> {
    await this.#drained;
  }
}
