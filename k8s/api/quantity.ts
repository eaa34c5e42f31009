/**
 * Quantities, as Kubernetes writes them (apimachinery's resource.Quantity).
 *
 * @module
 */

import { MAX_BYTES } from "../../base/size.ts";

/** The power of ten, or of two, that a suffix stands for. */
const SUFFIXES: Readonly<Record<string, readonly [2n | 10n, number]>> = {
  n: [10n, -9],
  u: [10n, -6],
  m: [10n, -3],
  "": [10n, 0],
  k: [10n, 3],
  M: [10n, 6],
  G: [10n, 9],
  T: [10n, 12],
  P: [10n, 15],
  E: [10n, 18],
  Ki: [2n, 10],
  Mi: [2n, 20],
  Gi: [2n, 30],
  Ti: [2n, 40],
  Pi: [2n, 50],
  Ei: [2n, 60],
};

const QUANTITY = /^\+?(\d{0,30})(?:\.(\d{0,30}))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?$/;

/**
 * Parses a quantity.
 *
 * @returns its bytes, rounded up as Kubernetes does, and no more than it knows, or `undefined` when the text is not a quantity
 */
export function quantityToBytes(text: string | undefined): bigint | undefined {
  const match = QUANTITY.exec(text ?? "");
  if (match === null) return undefined;
  const [, whole = "", fraction = "", suffix = "", exponent] = match;
  if (whole + fraction === "") return undefined;
  const [base, power] = exponent === undefined ? SUFFIXES[suffix]! : [10n, Number(exponent)] as const;
  const numerator = BigInt(whole + fraction) * (power > 0 ? base ** BigInt(power) : 1n);
  const denominator = 10n ** BigInt(fraction.length) * (power < 0 ? base ** BigInt(-power) : 1n);
  const bytes = (numerator + denominator - 1n) / denominator;
  return bytes > MAX_BYTES ? MAX_BYTES : bytes;
}
