/**
 * The navigation of the site: the list of all pages in docs/README.md.
 *
 * @module
 */

import { type KindOf, siteLink } from "./links.ts";

/** An entry of the sidebar, as VitePress takes it. */
export interface SidebarItem {
  readonly text: string;
  readonly link: string;
}

/** A group of the sidebar, as VitePress takes it. */
export interface SidebarGroup {
  readonly text: string;
  readonly collapsed: boolean;
  readonly items: readonly SidebarItem[];
}

/**
 * Returns the sidebar: a group for each heading of the second level, with the links of its list. Groups after the first two
 * are collapsed, unless the reader is on one of their pages.
 *
 * @param text the list of all pages
 * @param path its path from the root of the repository
 * @throws {Error} when a link leads to nothing
 */
export function sidebarOf(
  text: string,
  path: string,
  kindOf: KindOf,
): SidebarGroup[] {
  const [, ...chapters] = text.split(/^## /m);
  return chapters.map((chapter, index) => {
    const links = [...chapter.matchAll(/(?<!!)\[([^\]]+)\]\(([^)\s]+)\)/g)];
    const items = links.map(([, text, link]) => ({
      text: capitalized(text!),
      link: siteLink(link!, path, kindOf).href,
    }));
    return { text: chapter.split("\n")[0]!, collapsed: index > 1, items };
  });
}

/** Returns a text with a capital at its start, unless it is the name of a program. */
function capitalized(text: string): string {
  return /^(?:denolith|kubectl|fstrim|mkfs)\b/.test(text) ? text : text[0]!.toUpperCase() + text.slice(1);
}
