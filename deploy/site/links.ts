/**
 * Where files of the repository are on the site of the documents. Links in the documents are relative paths, as Git forges
 * resolve them; the site has pages in other places, and copies of the files that are no pages.
 *
 * @module
 */

/** The folder of the site with the copies of files that are no pages. */
export const SOURCE = "source";

/** The list of the versions, beside their folders, and in each of them a page that leads there. */
export const VERSIONS_PAGE = "versions.html";

/** A link of the site. */
export interface SiteLink {
  readonly href: string;
  /** Whether it leads to a page, and not to a copy of a file. */
  readonly isPage: boolean;
}

/**
 * Returns the path of a document's page on the site, with `.md`, or undefined for a file that has none.
 *
 * @param path path of the file from the root of the repository
 */
export function pageOf(path: string): string | undefined {
  if (/^(?!README)[A-Z_]+\.md$/.test(path)) return path.toLowerCase();
  if (path === "tests/record/README.md") return "record.md";
  const inside = /^(?:docs\/(.+\.md)|deploy\/((?:examples|chart)\/.+\.md))$/.exec(path);
  return (inside?.[1] ?? inside?.[2])?.replace(
    /(?<=^|\/)README\.md$/,
    "index.md",
  );
}

/** Returns whether a file is part of a page: its text or a picture. */
export function isDocument(path: string): boolean {
  return pageOf(path) !== undefined || /\.(?:png|svg)$/.test(path);
}

/** Returns whether a link leads out of the repository, or to a heading of the same document. */
export function isExternal(link: string): boolean {
  return link.startsWith("#") || /^[a-z]+:/.test(link);
}

/** Returns what is at a path of the repository; undefined if nothing is there. */
export type KindOf = (path: string) => "file" | "folder" | undefined;

/**
 * Returns a link of a document as the site has it.
 *
 * @param link a link that is not external
 * @param from path of the document from the root of the repository
 * @throws {Error} when it leads to nothing
 */
export function siteLink(link: string, from: string, kindOf: KindOf): SiteLink {
  const { pathname, hash } = new URL(link, `file:///${from}`);
  const path = decodeURIComponent(pathname.slice(1)).replace(/\/$/, "");
  const kind = kindOf(path);
  if (kind === undefined) {
    throw new Error(`${from}: the link ${link} leads to nothing`);
  }
  const document = kind === "folder" && kindOf(`${path}/README.md`) === "file" ? `${path}/README.md` : path;
  const page = pageOf(document);
  if (page !== undefined) return { href: `/${page}${hash}`, isPage: true };
  return { href: `/${copyOf(path, kind)}${hash}`, isPage: false };
}

/** Returns the path on the site of the copy of a file, or of the list of a folder. */
export function copyOf(path: string, kind: "file" | "folder"): string {
  return `${SOURCE}/${path}${kind === "folder" ? "/index" : ""}.html`;
}

/** Returns the anchor of a heading, as Git forges make it. */
export function anchorOf(title: string): string {
  return title.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-");
}
