/**
 * Copies of the files of the repository to which the documents link, as pages for a browser.
 *
 * @module
 */

import { copyOf, type KindOf, pageOf, SOURCE } from "./links.ts";

/** What is read of the repository. */
export interface Repository {
  readonly kindOf: KindOf;
  /** Returns the text of a file. */
  readonly textOf: (path: string) => string;
  /** Returns the names in a folder, sorted. */
  readonly namesIn: (path: string) => readonly string[];
}

/**
 * Returns the copies to which pages link: their HTML by their paths on the site. A link to a folder leads to a list of its
 * files, which are copied, too.
 *
 * @param pages the HTML of the pages
 * @param base the path of the site on its host, such as `/`
 */
export function copiesFor(
  pages: Iterable<string>,
  base: string,
  repository: Repository,
): Map<string, string> {
  const linked = new Set<string>();
  for (const page of pages) {
    for (const path of linkedCopies(page, base)) linked.add(path);
  }
  for (const path of [...linked]) {
    if (repository.kindOf(path) !== "folder") continue;
    for (const child of childrenOf(path, repository)) {
      if (repository.kindOf(child) === "file" && pageOf(child) === undefined) {
        linked.add(child);
      }
    }
  }
  return new Map([...linked].map((path) => {
    const kind = repository.kindOf(path);
    if (kind === undefined) {
      throw new Error(`copy ${path}: there is no such file`);
    }
    const body = kind === "file"
      ? `<pre>${escaped(repository.textOf(path))}</pre>`
      : folderList(path, linked, base, repository);
    return [copyOf(path, kind), htmlPage(path, base, body)];
  }));
}

/** Returns the paths of the repository to whose copies a page links. */
function linkedCopies(page: string, base: string): string[] {
  const prefix = `href="${base}${SOURCE}/`;
  return page.split(prefix).slice(1).map((rest) =>
    rest.slice(0, rest.search(/["#]/)).replace(/(?:\/index)?\.html$/, "")
  );
}

function childrenOf(path: string, { namesIn }: Repository): string[] {
  return namesIn(path).map((name) => `${path}/${name}`);
}

function folderList(
  path: string,
  linked: ReadonlySet<string>,
  base: string,
  repository: Repository,
): string {
  const items = childrenOf(path, repository).map((child) => {
    const kind = repository.kindOf(child)!;
    const name = child.slice(path.length + 1) + (kind === "folder" ? "/" : "");
    const page = pageOf(child)?.replace(/\.md$/, ".html") ??
      (linked.has(child) ? copyOf(child, kind) : undefined);
    return `<li>${page === undefined ? escaped(name) : `<a href="${base}${page}">${escaped(name)}</a>`}</li>`;
  });
  return `<ul>${items.join("")}</ul>`;
}

function htmlPage(path: string, base: string, body: string): string {
  return plainPage(path, `<p><a href="${base}">denolith</a></p>\n<h1>${escaped(path)}</h1>\n${body}`);
}

/** Returns a page that VitePress does not make. @param body its content, as HTML */
export function plainPage(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escaped(title)}</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 1.5rem; }
pre { font: 14px/1.5 ui-monospace, monospace; overflow-x: auto; tab-size: 4; }
</style>
${body}
</html>
`;
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(
    '"',
    "&quot;",
  );
}
