import { Inject } from "@nestjs/common";
import { InvalidOptionError, MisuseError } from "../core/errors.js";
import type { Hold } from "../core/hold.js";
import type { AcquireOptions } from "../core/options.js";
import type { Locks } from "../locks.js";
import type { Lock as AnyLock } from "../recipes/lock.js";
import type { TicksOptions } from "../recipes/ticks.js";
import { runWithHold, runWithTick } from "./current.js";
import { DEFAULT_STORE, locksToken } from "./token.js";

/** How a method takes its lock: the options of `acquire`, and which kind of lock of which store. */
export interface LockOptions extends Omit<AcquireOptions, "signal" | "id" | "within"> {
  /** A side of a read-write lock in place of a mutex. */
  readonly readWrite?: "read" | "write";
  /** A semaphore of this capacity in place of a mutex; the method takes one permit. */
  readonly semaphore?: number;
  /** The name that the store was given in `forRoot`. */
  readonly store?: string;
}

export interface RunOnceOptions extends TicksOptions {
  /** In all programs the same; class and method unless said otherwise. */
  readonly name?: string;
  readonly store?: string;
}

/** A method whose first arguments a name may be computed from. */
// oxlint-disable-next-line typescript/no-explicit-any
type Method<Args extends unknown[] = []> = (...args: [...Args, ...any[]]) => unknown;
type Decorator<Args extends unknown[] = []> = <T extends Method<Args>>(
  target: object,
  property: string | symbol,
  descriptor: TypedPropertyDescriptor<T>,
) => void;
type Around = (locks: Locks, run: () => unknown, args: readonly unknown[], self: object) => unknown;

/** The locks of a store, as a parameter of a constructor or a property. */
export function InjectLocks(store: string = DEFAULT_STORE): ReturnType<typeof Inject> {
  return Inject(locksToken(store));
}

/**
 * The method runs under the lock of this name, which may be computed from its arguments. It answers a promise. Its hold is found
 * by `currentHold()`.
 */
export function Lock<Args extends unknown[]>(
  name: string | ((...args: Args) => string),
  options: LockOptions = {},
): Decorator<Args> {
  const { store = DEFAULT_STORE, readWrite, semaphore, ...acquire } = options;
  const lockOf = kindOf(readWrite, semaphore);
  return decorate(store, () => (locks, run, args, self) => {
    const lock = lockOf(locks, typeof name === "string" ? name : name.apply(self, args as Args));
    return lock.using(acquire, (hold) => runWithHold(hold, run));
  });
}

/**
 * For a method with `@Cron`, `@Interval` or `@Timeout`: each tick runs in one program of the fleet, and nowhere else. A tick that
 * runs elsewhere answers undefined here.
 */
export function RunOnce(options: RunOnceOptions = {}): Decorator {
  const { store = DEFAULT_STORE, name, ...rest } = options;
  return decorate(store, (place) => async (locks, run) => {
    const result = await locks.ticks(name ?? place, rest).run((tick) => runWithTick(tick, run));
    return result.ran ? result.value : undefined;
  });
}

function kindOf(
  readWrite: "read" | "write" | undefined,
  semaphore: number | undefined,
): (locks: Locks, name: string) => AnyLock<Hold> {
  if (readWrite !== undefined && semaphore !== undefined) {
    throw new InvalidOptionError("semaphore", "a lock is of one kind", "one of readWrite and semaphore");
  }
  if (semaphore !== undefined) return (locks, name) => locks.semaphore(name, semaphore);
  if (readWrite === undefined) return (locks, name) => locks.mutex(name);
  if (readWrite === "read") return (locks, name) => locks.readWrite(name).read;
  if (readWrite === "write") return (locks, name) => locks.readWrite(name).write;
  throw new InvalidOptionError("readWrite", String(readWrite), '"read" or "write"');
}

/** A decorator of methods in whose place `around` runs. Nest gives the locks to each instance, as a property of its own. */
function decorate(store: string, aroundOf: (place: string) => Around): Decorator {
  const key = Symbol.for(`holdfast.nest.${store}`);
  return <T extends Method>(
    target: object,
    property: string | symbol,
    descriptor: TypedPropertyDescriptor<T>,
  ): void => {
    const original = descriptor.value;
    const place = `${target.constructor.name}.${String(property)}`;
    if (typeof original !== "function" || typeof target === "function") {
      throw new MisuseError(`${place}: @Lock and @RunOnce are for methods of instances.`);
    }
    if (/Generator/.test(Object.prototype.toString.call(original))) {
      throw new MisuseError(
        `${place}: a generator would run after its lock was given back. Take the lock inside: locks.mutex(name).using(…).`,
      );
    }
    InjectLocks(store)(target, key);
    const around = aroundOf(place);
    const method = async function (this: { [injected: symbol]: Locks | undefined }, ...args: unknown[]) {
      const locks = this[key];
      if (locks === undefined) {
        throw new MisuseError(`${place}: its instance has no locks. Let Nest make it, with HoldfastModule imported.`);
      }
      return around(locks, () => Reflect.apply(original, this, args), args, this);
    };
    descriptor.value = like(original, method as Method) as T;
  };
}

/** What `reflect-metadata`, which Nest brings, adds. */
type Metadata = {
  readonly getOwnMetadataKeys: (target: object) => unknown[];
  readonly getOwnMetadata: (key: unknown, target: object) => unknown;
  readonly defineMetadata: (key: unknown, value: unknown, target: object) => void;
};

/** Decorators below this one wrote onto the original: frameworks look for that on the method that they find. */
function like(original: Method, method: Method): Method {
  const { getOwnMetadataKeys, getOwnMetadata, defineMetadata } = Reflect as unknown as Metadata;
  for (const key of getOwnMetadataKeys(original)) defineMetadata(key, getOwnMetadata(key, original), method);
  const { name, length } = original;
  return Object.defineProperties(method, { name: { value: name }, length: { value: length } });
}
