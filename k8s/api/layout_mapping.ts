/**
 * Layouts as LVMVolumes have them. A linear volume's has none, as those had that were written before there were others.
 *
 * @module
 */

import { type Layout, LINEAR } from "../../lvm/model/layout.ts";
import { DEFAULT_STRIPE_SIZE } from "../../lvm/spec/layouts.ts";
import { formatQuantity, parseQuantity } from "../../lvm/size.ts";
import type { LayoutSpec } from "./lvm_objects.ts";

/** Returns the `layout` field of an LVMVolume, or `undefined` for a linear layout. */
export function layoutSpecOf(layout: Layout): LayoutSpec | undefined {
  if (layout.type === "linear") return undefined;
  if (layout.type === "raid1") return { type: layout.type, mirrors: layout.mirrors };
  return { type: layout.type, stripes: layout.stripes, stripeSize: formatQuantity(layout.stripeSize) };
}

/** Returns the layout that the spec of an LVMVolume asks for. The schema of the kind has validated it. */
export function layoutOfSpec(spec: LayoutSpec | undefined): Layout {
  if (spec === undefined) return LINEAR;
  if (spec.type === "raid1") return { type: spec.type, mirrors: spec.mirrors };
  return { type: spec.type, stripes: spec.stripes, stripeSize: parseQuantity(spec.stripeSize) ?? DEFAULT_STRIPE_SIZE };
}
