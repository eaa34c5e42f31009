/**
 * Configuration of VitePress, which makes the site of the documents.
 *
 * @module
 */

import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { anchorOf, isExternal, pageOf, siteLink, VERSIONS_PAGE } from "./links.ts";
import { kindOf, PAGES, ROOT, WORK } from "./repository.ts";
import { sidebarOf } from "./sidebar.ts";

/** The part of markdown-it's token that is changed here. */
interface Token {
  readonly type: string;
  readonly children: readonly Token[] | null;
  attrGet(name: string): string | null;
  attrSet(name: string, value: string): void;
}

/** What a rule of markdown-it gets. */
interface RuleState {
  readonly tokens: readonly Token[];
  /** The document: the path of its file, as the site has it unless `realPath` is given. */
  readonly env: { readonly path: string; readonly realPath?: string };
}

/** The part of markdown-it that is used here. */
interface MarkdownIt {
  readonly core: { readonly ruler: { push(name: string, rule: (state: RuleState) => void): void } };
}

/** Makes the links of documents to those of a site. @returns what VitePress calls with its markdown-it */
const linkRewriter = (base: string) => (markdown: MarkdownIt): void => {
  markdown.core.ruler.push("denolith-links", ({ tokens, env }) => {
    const from = relative(PAGES, env.realPath ?? env.path);
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const link = token.type === "link_open" ? token.attrGet("href") : null;
      if (link === null || isExternal(link)) continue;
      const { href, isPage } = siteLink(link, from, kindOf);
      // VitePress loads pages by a script, and puts the path of the site before them, unless a link has a target. Copies of files
      // are no pages of its.
      token.attrSet("href", isPage ? href : base + href.slice(1));
      if (!isPage) token.attrSet("target", "_self");
    }
  });
};

/** Wide tables, which the reference has, need more space than VitePress gives them. */
const STYLE = `
.VPDoc.has-aside .content-container.content-container { max-width: 1040px; }
.vp-doc table { font-size: 14px; }
.vp-doc th, .vp-doc td { padding: 6px 10px; text-align: left; vertical-align: top; line-height: 20px; }
.vp-doc td { min-width: 4rem; font-size: inherit; }
.vp-doc td code { font-size: 12px; padding: 1px 3px; }
.vp-doc td:last-child { min-width: min(12rem, 50vw); }
.vp-doc td:first-child code { white-space: nowrap; }
`;

const icon = encodeURIComponent(
  readFileSync(join(ROOT, "plugin/ui/page/icon.svg"), "utf8"),
);

/** What a site has, beside the documents. */
export interface SiteOptions {
  /** The path of the site on its host, with slashes at both ends. */
  readonly base: string;
  /** The version of the documents, as the navigation names it. */
  readonly version: string;
  /** Whether {@linkcode VERSIONS_PAGE} of the site leads to those of other versions. */
  readonly hasVersions: boolean;
  /** The folder of the repository where its forge changes files, without a slash at the end. */
  readonly edit?: string;
}

/** Returns the entry of the navigation that names the version. */
function versionEntry({ version, hasVersions }: SiteOptions): object {
  const others = { text: "Other versions", link: `/${VERSIONS_PAGE}`, target: "_self" }; // no page of VitePress
  return { text: version, items: [{ text: "Changelog", link: "/changelog" }, ...(hasVersions ? [others] : [])] };
}

/** Returns the configuration. */
export const configOf = (options: SiteOptions) => ({
  base: options.base,
  title: "denolith",
  description: "Node-local LVM volumes for Kubernetes",
  lang: "en-GB",
  srcDir: relative(WORK, PAGES),
  outDir: join(ROOT, "dist/site"),
  cacheDir: join(WORK, "cache"),
  rewrites: (path: string): string => pageOf(path) ?? path,
  head: [["link", { rel: "icon", href: `data:image/svg+xml,${icon}` }], ["style", {}, STYLE]],
  // the list of chapters beside a page takes the space that wide tables need
  transformPageData: ({ relativePath }: { relativePath: string }) =>
    /^(?:reference|chart)\//.test(relativePath) ? { frontmatter: { aside: false } } : {},
  ignoreDeadLinks: [/^\/.*source\//], // they are made and checked afterwards
  markdown: { anchor: { slugify: anchorOf }, config: linkRewriter(options.base) },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Quick start", link: "/quick-start" },
      { text: "Install", link: "/guides/install" },
      { text: "FAQ", link: "/faq" },
      versionEntry(options),
    ],
    ...(options.edit === undefined ? {} : { editLink: { pattern: `${options.edit}/:path`, text: "Edit this page" } }),
    sidebar: sidebarOf(
      readFileSync(join(ROOT, "docs/README.md"), "utf8"),
      "docs/README.md",
      kindOf,
    ),
  },
});
