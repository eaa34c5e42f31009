/**
 * Layouts as LVMVolumes have them. A linear volume's has none, as those had that were written before there were others.
 *
 * @module
 */

import { hasIntegrity, isCached, type Layout, LINEAR } from "../../lvm/model/layout.ts";
import { DEFAULT_CACHE_SIZE, DEFAULT_STRIPE_SIZE } from "../../lvm/settings/layouts.ts";
import { formatQuantity, parseQuantity } from "../../base/size.ts";
import type { LayoutSpec } from "./lvm_objects.ts";

/** Returns the `layout` field of an LVMVolume, or `undefined` for a linear layout. */
export function layoutSpecOf(layout: Layout): LayoutSpec | undefined {
  if (layout.type === "linear") return undefined;
  if (isCached(layout)) return { type: layout.type, cacheSize: formatQuantity(layout.cacheSize) };
  const integrity = hasIntegrity(layout) ? { integrity: true } : {};
  if (layout.type === "raid1") return { type: layout.type, mirrors: layout.mirrors, ...integrity };
  const { type, stripes, stripeSize } = layout;
  return { type, stripes, stripeSize: formatQuantity(stripeSize), ...integrity };
}

/** Returns the layout that the spec of an LVMVolume asks for. The schema of the kind has validated it. */
export function layoutOfSpec(spec: LayoutSpec | undefined): Layout {
  if (spec === undefined) return LINEAR;
  if ("cacheSize" in spec) {
    return { type: spec.type, cacheSize: parseQuantity(spec.cacheSize) ?? DEFAULT_CACHE_SIZE };
  }
  const integrity = spec.integrity === true ? { integrity: true as const } : {};
  if (spec.type === "raid1") return { type: spec.type, mirrors: spec.mirrors, ...integrity };
  const { type, stripes } = spec;
  const stripeSize = parseQuantity(spec.stripeSize) ?? DEFAULT_STRIPE_SIZE;
  return type === "striped" ? { type, stripes, stripeSize } : { type, stripes, stripeSize, ...integrity };
}
