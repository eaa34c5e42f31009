/**
 * All combinations of values, for tests of what is true for each of them.
 *
 * @module
 */

/** Returns all combinations of values, each of one of the values of each name. */
export function* combinationsOf<T extends object>(
  values: { readonly [K in keyof T]: readonly T[K][] },
): Generator<T> {
  const [[name, all] = ["", []], ...others] = Object.entries<readonly unknown[]>(values);
  if (name === "") return yield {} as T;
  for (const rest of combinationsOf<object>(Object.fromEntries(others) as never)) {
    for (const value of all) yield { ...rest, [name]: value } as T;
  }
}
