/**
 * Lists and watches of objects, as every client of an API server asks for them.
 *
 * @module
 */

import { apiVersionOf, type KubeObject, pathOf, type Resource } from "../api/objects.ts";
import type { ObjectList, Selection } from "./client.ts";
import type { Page } from "./response.ts";

/** Returns the parameters of a request that select objects. */
function selectionQuery({ labelSelector, fieldSelector }: Selection): URLSearchParams {
  const query = new URLSearchParams();
  if (labelSelector !== undefined) query.set("labelSelector", labelSelector);
  if (fieldSelector !== undefined) query.set("fieldSelector", fieldSelector);
  return query;
}

/** Returns the path of a watch of what is selected. */
export function watchPath(
  resource: Resource,
  selection: Selection,
  parameters: { readonly resourceVersion: string; readonly timeoutSeconds?: string },
): string {
  const query = selectionQuery(selection);
  for (const [name, value] of Object.entries({ watch: "true", allowWatchBookmarks: "true", ...parameters })) {
    query.set(name, value);
  }
  return `${pathOf(resource, { namespace: selection.namespace })}?${query}`;
}

/**
 * Reads a list in pages.
 *
 * @param readPage reads the page at a path
 */
export async function* readPages<T extends KubeObject>(
  resource: Resource<T>,
  selection: Selection,
  pageSize: number,
  readPage: (path: string) => Promise<Page<T>>,
): AsyncGenerator<ObjectList<T>> {
  const query = selectionQuery(selection);
  query.set("limit", `${pageSize}`);
  // The server omits the kind from the items of a list.
  const kind = { apiVersion: apiVersionOf(resource), kind: resource.kind };
  while (true) {
    const page = await readPage(`${pathOf(resource, { namespace: selection.namespace })}?${query}`);
    yield { items: page.items.map((item) => Object.assign(item, kind)), resourceVersion: page.resourceVersion };
    if (page.continue === undefined) return;
    query.set("continue", page.continue);
  }
}

/** Returns all objects of a list that is read in pages. */
export async function collectPages<T>(pages: AsyncIterable<ObjectList<T>>): Promise<ObjectList<T>> {
  const items: T[] = [];
  let resourceVersion = "";
  for await (const page of pages) {
    for (const item of page.items) items.push(item); // a server may answer with all of them, whatever the limit
    ({ resourceVersion } = page);
  }
  return { items, resourceVersion };
}
