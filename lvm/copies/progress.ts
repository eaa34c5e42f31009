/**
 * The progress of copies.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import type { CopyProgress } from "../inventory/copying.ts";
import type { Volume } from "../inventory/volume.ts";
import { copyBaseOf } from "../model/remote_source.ts";
import { hasBase } from "./goal.ts";
import type { Work } from "./work.ts";

/** Returns how far the copy of a volume is. @param work what this process knows of it */
export function progressOf(
  { lv, tags: { copied } }: Pick<Volume, "lv" | "tags">,
  { offset, total, lastError, received }: Work,
): CopyProgress {
  const base = copyBaseOf(lv.tags);
  return {
    copied: offset ?? (copied === "all" ? lv.size : copied ?? 0n),
    ...defined({ total, lastError }),
    ...defined({ snapshot: base && hasBase(lv, copied) ? base.id : undefined }),
    ...defined({ received: received === undefined ? undefined : BigInt(received) }),
  };
}
