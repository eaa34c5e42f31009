/**
 * Objects without fields that are `undefined`.
 *
 * @module
 */

/** The type of {@linkcode defined}'s result: a field whose value may be `undefined` becomes optional. */
export type Defined<T> =
  & { [K in keyof T as undefined extends T[K] ? never : K]: T[K] }
  & { [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined> };

/**
 * Returns an object without the fields whose values are `undefined`. An optional field of an interface may be absent, but not
 * `undefined` (TypeScript, exactOptionalPropertyTypes).
 *
 * @param fields The fields; other empty values, such as `null`, `""` and `0`, stay.
 * @returns a new object with the fields that have a value.
 */
export function defined<T extends object>(fields: T): Defined<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<T>;
}
