/** Ends a subscription. Calling it again does nothing. */
export type Unlisten = () => void;

/** One that `using` ends too. */
export type Subscription = Unlisten & Disposable;

export function subscription(unlisten: Unlisten): Subscription {
  return Object.assign(() => unlisten(), { [Symbol.dispose]: () => unlisten() });
}
