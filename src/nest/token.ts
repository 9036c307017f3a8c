/** Of the store that has no name of its own. */
export const DEFAULT_STORE = "default";

/** What Nest knows the locks of a store by: `@Inject(locksToken())` is `@InjectLocks()`. */
export function locksToken(store: string = DEFAULT_STORE): string {
  return `holdfast locks: ${store}`;
}
