/**
 * The check of the built site: each link leads to a page and a heading that exist, and nothing is loaded from another host.
 *
 * @module
 */

import { Parser } from "htmlparser2";

/** A built page. */
interface Page {
  readonly ids: ReadonlySet<string>;
  /** The targets of its links, and of what a browser loads for it. */
  readonly links: readonly string[];
  readonly loads: readonly string[];
}

/**
 * Returns what is wrong with a site, a line each.
 *
 * @param files the files by their paths from the site's root; undefined for those whose text does not matter
 * @param base the path of the site on its host, such as `/`
 * @param beside paths on the host that are of no file of the site, to which it may link
 */
export function problemsOf(
  files: ReadonlyMap<string, string | undefined>,
  base: string,
  beside: readonly string[] = [],
): string[] {
  const pages = new Map(
    [...files].flatMap(([path, text]) => path.endsWith(".html") ? [[path, parsePage(text!)] as const] : []),
  );
  const problems: string[] = [];
  for (const [path, { links, loads }] of pages) {
    for (const target of new Set([...links, ...loads])) {
      const { origin, pathname, hash } = new URL(
        target,
        `http://site${base}${path}`,
      );
      if (origin !== "http://site") {
        if (loads.includes(target) && !target.startsWith("data:")) {
          problems.push(`${path} loads ${target}`);
        }
        continue;
      }
      if (beside.includes(pathname)) continue;
      const file = fileAt(decodeURIComponent(pathname), base);
      if (file === undefined || !files.has(file)) {
        problems.push(`${path}: nothing is at ${target}`);
      } else if (
        hash !== "" &&
        !pages.get(file)?.ids.has(decodeURIComponent(hash.slice(1)))
      ) {
        problems.push(`${path}: no heading is at ${target}`);
      }
    }
  }
  for (const [path, text] of files) {
    if (!path.endsWith(".css")) continue;
    for (
      const [, url] of text!.matchAll(
        /(?:url\(|@import )["']?((?:https?:)?\/\/[^"')]+)/g,
      )
    ) {
      problems.push(`${path} loads ${url}`);
    }
  }
  return problems;
}

/** Returns the file that a server has at a path, or undefined for a path that is not of the site. */
function fileAt(pathname: string, base: string): string | undefined {
  if (!pathname.startsWith(base)) return undefined;
  const path = pathname.slice(base.length);
  return path === "" || path.endsWith("/") ? `${path}index.html` : path;
}

function parsePage(text: string): Page {
  const ids = new Set<string>();
  const links: string[] = [];
  const loads: string[] = [];
  const parser = new Parser({
    onopentag: (name, { id, href, src }) => {
      if (id !== undefined) ids.add(id);
      if (href !== undefined) (name === "link" ? loads : links).push(href);
      if (src !== undefined) loads.push(src);
    },
  });
  parser.end(text);
  return { ids, links, loads };
}
