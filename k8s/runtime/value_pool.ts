/**
 * A pool of values that many objects have in common, so that each is in memory once.
 *
 * @module
 */

/** The number of values after which a pool starts again. Values that are no longer in it are only not shared any more. */
const MAX_VALUES = 50_000;

/** Shares texts, and small values that are never changed. */
export class ValuePool {
  readonly #texts = new Map<string, string>();
  readonly #values = new Map<string, unknown>();

  /** Returns the text that is equal to another one, and was given first. */
  text<T extends string | undefined>(text: T): T {
    return text === undefined ? text : remember(this.#texts, text, () => text) as T;
  }

  /** Returns the list of texts that is equal to another one, and was given first. */
  list<T extends readonly string[] | undefined>(list: T): T {
    return list === undefined ? list : this.value(`[${list.map(delimited).join("")}`, () => list);
  }

  /** Returns the entries of a record whose names are in a list, or `undefined` when there are none. */
  entries(
    record: Record<string, string> | undefined,
    names: readonly string[],
  ): Record<string, string> | undefined {
    if (record === undefined) return undefined;
    let key = "{";
    for (const name of names) if (record[name] !== undefined) key += `${name} ${delimited(record[name]!)}`;
    if (key === "{") return undefined;
    const kept = () =>
      Object.fromEntries(names.filter((name) => record[name] !== undefined).map((name) => [name, record[name]!]));
    return this.value(key, kept);
  }

  /** Returns the value that was made first for a key. */
  value<T>(key: string, value: () => T): T {
    return remember(this.#values, key, value) as T;
  }
}

function remember<T>(values: Map<string, T>, key: string, value: () => T): T {
  const known = values.get(key);
  if (known !== undefined) return known;
  if (values.size >= MAX_VALUES) values.clear();
  const added = value();
  values.set(key, added);
  return added;
}

/** Returns a text as a part of a key, so that no other parts make the same key. */
function delimited(text: string): string {
  return `${text.length}:${text}`;
}
