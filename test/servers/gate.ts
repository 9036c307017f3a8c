/** A promise and what settles it. */
export function gate<T = void>(): { readonly passed: Promise<T>; open(value: T): void } {
  let open: (value: T) => void = () => {};
  const passed = new Promise<T>((fulfil) => (open = fulfil));
  return { passed, open };
}
