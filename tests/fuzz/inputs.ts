/**
 * Inputs of fuzz targets: valid ones, changed at random.
 *
 * @module
 */

import fc from "fast-check";
import type { Json } from "./target.ts";

/** Texts that parsers get wrong: empty, very long, other scripts, numbers that are none, names of Object's members. */
export const oddTexts: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(
    ...[
      "",
      " ",
      "-",
      "--",
      "\0",
      "\n",
      "\r\n",
      "\t",
      ",",
      ",,",
      "=",
      ":",
      "/",
      "//",
      "..",
      "../../etc/passwd",
      "@",
      "#",
    ],
    ...["__proto__", "constructor", "toString", "hasOwnProperty", "null", "undefined", "true", "NaN", "Infinity"],
    ...[
      "-1",
      "0",
      "1e9",
      "1e999",
      "0x10",
      "1.5",
      "99999999999999999999",
      "9223372036854775807",
      "-9223372036854775808",
    ],
    ...[
      "$(reboot)",
      "`reboot`",
      ";reboot",
      "a b",
      "a\nb",
      "--yes",
      "-y",
      "[x]",
      "{}",
      '"',
      "\\",
      "%s",
      "💾",
      "\u202e\ufeff",
    ],
    "a".repeat(300),
    "💾".repeat(100),
    " ".repeat(5_000),
    "9".repeat(5_000),
    "(".repeat(1_000),
  ),
  fc.string({ unit: "binary", maxLength: 40 }).map((text) => text.toWellFormed()),
  fc.string({ unit: "grapheme-ascii", maxLength: 40 }),
);

/** Values of any JSON type. */
export const oddValues: fc.Arbitrary<Json> = fc.oneof(
  { weight: 3, arbitrary: oddTexts },
  fc.constantFrom<Json>(null, true, false, 0, -1, 1.5, 1e21, 9007199254740993, [], {}, [[]], [null], { a: null }),
  fc.integer(),
  fc.jsonValue({ maxDepth: 2 }) as fc.Arbitrary<Json>,
);

/** A change of a JSON value. The number selects the place. */
interface Change {
  readonly kind: "replace" | "delete" | "add" | "swap" | "repeat";
  readonly at: number;
  readonly key: string;
  readonly value: Json;
}

type Place = { readonly holder: Json[] | Record<string, Json>; readonly key: string };

const changes = (kinds: readonly Change["kind"][]): fc.Arbitrary<Change> =>
  fc.record({ kind: fc.constantFrom(...kinds), at: fc.nat(), key: oddTexts, value: oddValues });

/** Returns values of which each is one of the bases with some changes anywhere in it. */
export function changedJson(bases: readonly Json[], { maxChanges = 4 } = {}): fc.Arbitrary<Json> {
  const all = changes(["replace", "replace", "delete", "add", "swap", "repeat"]);
  return fc.tuple(fc.constantFrom(...bases), fc.array(all, { maxLength: maxChanges }))
    .map(([base, list]) => list.reduce(applyChange, structuredClone(base)));
}

/** Returns values of which each is one of the bases with unknown fields anywhere in it, as a newer version may send. */
export function extendedJson(bases: readonly Json[]): fc.Arbitrary<{ readonly base: Json; readonly extended: Json }> {
  const added = changes(["add"]).map((change) => ({ ...change, key: `x${change.key}NewInV2` }));
  return fc.tuple(fc.constantFrom(...bases), fc.array(added, { minLength: 1, maxLength: 4 }))
    .map(([base, list]) => ({ base, extended: list.reduce(applyChange, structuredClone(base)) }));
}

/** Returns all places of a value, in the order of its text. */
function placesOf(value: Json, found: Place[] = []): Place[] {
  if (typeof value !== "object" || value === null) return found;
  for (const key of Object.keys(value)) {
    const holder = value as Record<string, Json>;
    found.push({ holder, key });
    placesOf(holder[key]!, found);
  }
  return found;
}

function applyChange(value: Json, { kind, at, key, value: shared }: Change): Json {
  const odd = structuredClone(shared); // several changes may have the same constant
  if (kind === "add") return addField(value, at, key, odd);
  const places = placesOf(value);
  const place = places[at % places.length];
  if (place === undefined) return odd;
  const holder = place.holder as Record<string, Json>;
  if (kind === "replace") holder[place.key] = odd;
  else if (kind === "delete") remove(place);
  else if (kind === "swap") {
    const other = places[(at * 31 + key.length) % places.length]!;
    holder[place.key] = structuredClone((other.holder as Record<string, Json>)[other.key]!);
  } else if (Array.isArray(place.holder)) place.holder.push(structuredClone(place.holder[Number(place.key)]!));
  return value;
}

function addField(value: Json, at: number, key: string, odd: Json): Json {
  const objects = [value, ...placesOf(value).map(({ holder, key }) => (holder as Record<string, Json>)[key]!)]
    .filter((each) => typeof each === "object" && each !== null && !Array.isArray(each)) as Record<string, Json>[];
  const object = objects[at % objects.length];
  if (object !== undefined) Object.defineProperty(object, key, { value: odd, ...WRITABLE });
  return value;
}

/** An assignment to `__proto__` would set the prototype; JSON.parse makes a field. */
const WRITABLE = { writable: true, enumerable: true, configurable: true };

function remove({ holder, key }: Place): void {
  if (Array.isArray(holder)) holder.splice(Number(key), 1);
  else delete holder[key];
}

/** Returns texts of which each is one of the bases with some changes anywhere in it. */
export function changedText(bases: readonly string[], { maxChanges = 4 } = {}): fc.Arbitrary<string> {
  const change = fc.record({
    kind: fc.constantFrom("insert", "replace", "delete", "repeat", "cut"),
    at: fc.nat(),
    length: fc.integer({ min: 0, max: 20 }),
    text: oddTexts,
  });
  return fc.tuple(fc.constantFrom(...bases), fc.array(change, { maxLength: maxChanges })).map(([base, list]) =>
    list.reduce((text, { kind, at, length, text: odd }) => {
      const from = at % (text.length + 1);
      const [before, part, after] = [text.slice(0, from), text.slice(from, from + length), text.slice(from + length)];
      if (kind === "insert") return before + odd + part + after;
      if (kind === "replace") return before + odd + after;
      if (kind === "delete") return before + after;
      if (kind === "repeat") return before + part.repeat(3) + after;
      return before;
    }, base).toWellFormed()
  );
}
