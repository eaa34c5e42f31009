/**
 * Objects in the caches of a controller that fail when a field is read that the controller does not keep.
 *
 * @module
 */

import { CachedObjects } from "../../../k8s/service/cached_objects.ts";

/** Returns what makes of objects what the controller keeps of them. A read of any other field that they had fails. */
export function strictCachedObjects(): CachedObjects {
  return new Proxy(new CachedObjects(), {
    get: (target, name) => {
      const transform = target[name as keyof CachedObjects] as (object: object) => object;
      return (object: object) => strict(transform(object), object);
    },
  });
}

/** Returns an object whose fields can be read as far as they are kept. */
function strict<T extends object>(kept: T, whole: object): T {
  return new Proxy(kept, {
    get: (target, name) => {
      if (name === "conditions") return (kept as { conditions?: unknown }).conditions; // those without problems are left out
      const [value = name === "annotations" ? {} : undefined, original] = [target, whole].map((object) =>
        (object as Record<string | symbol, unknown>)[name]
      );
      if (value === undefined && original !== undefined && Object.hasOwn(whole, name)) {
        throw new Error(`the field ${String(name)} is read, which CachedObjects does not keep`);
      }
      return isObject(value) && isObject(original) ? strict(value, original) : value;
    },
  });
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
