/**
 * SELinux contexts of mounts: with the mount flag `context`, all files of a filesystem have one context, whatever labels they
 * have (mount(8)). In a cluster, kubelet sets it to the context of the pod, if the CSIDriver says `seLinuxMount`.
 *
 * @module
 */

import { quote, StorageError } from "../../base/error.ts";

/**
 * The flag: user, role, type, and with MLS a level, in quotes if it has commas. kubelet always quotes it.
 */
export const CONTEXT_FLAG =
  /^context=(?:"[\w.-]+:[\w.-]+:[\w.-]+(?::[\w.,:-]+)?"|[\w.-]+:[\w.-]+:[\w.-]+(?::[\w.:-]+)?)$/;

/** The flag among options that commas separate. */
const CONTEXT_OPTION = /(?:^|,)context=(?:"([^"]*)"|([^,]*))/;

/**
 * Returns the context in mount flags.
 *
 * @returns `undefined` when none is requested
 * @throws {StorageError} `InvalidArgument` when there are several
 */
export function requestedContext(flags: readonly string[]): string | undefined {
  const contexts = [...new Set(flags.map(contextIn).filter((context) => context !== undefined))];
  if (contexts.length <= 1) return contexts[0];
  throw new StorageError(
    "InvalidArgument",
    `mount flags with the SELinux contexts ${
      contexts.map(quote).join(" and ")
    }: a mount has one; in a cluster, kubelet ` +
      "sets it, and the class must not",
  );
}

/** Returns the context in the options of a filesystem, as the mount table shows them; `undefined` when there is none. */
export function contextIn(options: string): string | undefined {
  const [, quoted, plain] = CONTEXT_OPTION.exec(options) ?? [];
  return quoted ?? plain;
}

/** Reports whether two contexts are the same. The kernel writes the categories of a level in its own way. */
export function isSameContext(left: string | undefined, right: string | undefined): boolean {
  return canonicalContext(left) === canonicalContext(right);
}

/** Writes the categories of a context in order and one by one: `s0:c3,c1` as `s0:c1,c3`, and `s0:c0.c2` as `s0:c0,c1,c2`. */
function canonicalContext(context: string | undefined): string | undefined {
  return context?.replaceAll(/\bc\d+(?:[.,]c\d+)+/g, (categories) => {
    const numbers = categories.split(",").flatMap((part) => {
      const [first, last = first] = part.split(".").map((category) => Number(category.slice(1))) as [number, number?];
      return Array.from({ length: Math.min(1024, Math.max(0, last - first + 1)) }, (_, index) => first + index);
    });
    return [...new Set(numbers)].sort((a, b) => a - b).map((number) => `c${number}`).join(",");
  });
}
