/**
 * How large the store of a copy-on-write snapshot is: the room for blocks of the volume that change after the cut.
 *
 * @module
 */

import { formatQuantity, parseQuantity, roundUp } from "./size.ts";

/** How large the store is: bytes, or a percentage of the volume. */
export type StoreSize = { readonly bytes: bigint } | { readonly percent: bigint };

/** A store that cannot overflow, whatever is written to the volume. */
export const FULL_STORE: StoreSize = { percent: 100n };

/** The size that `20%` or `10Gi` stands for; `undefined` for what is neither 1% to 100% nor a quantity of some bytes. */
export function parseStoreSize(text: string): StoreSize | undefined {
  const percent = /^(\d{1,3})%$/.exec(text)?.[1];
  if (percent !== undefined) {
    return Number(percent) >= 1 && Number(percent) <= 100 ? { percent: BigInt(percent) } : undefined;
  }
  const bytes = parseQuantity(text);
  return bytes !== undefined && bytes > 0n ? { bytes } : undefined;
}

/** The size as {@linkcode parseStoreSize} reads it. */
export function formatStoreSize(store: StoreSize): string {
  return "bytes" in store ? formatQuantity(store.bytes) : `${store.percent}%`;
}

/**
 * The size of the store in whole extents. One that cannot overflow needs room for its own table too; LVM reduces what is
 * more than it could ever use (lvcreate(8), --snapshot).
 */
export function storeBytes(store: StoreSize, origin: bigint, extentSize: bigint): bigint {
  if ("bytes" in store) return roundUp(store.bytes, extentSize);
  if (store.percent >= 100n) return roundUp(origin + origin / 100n, extentSize);
  return roundUp(origin * store.percent / 100n, extentSize);
}
