/**
 * Configuration of VitePress, which makes the site of the documents.
 *
 * @module
 */

import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { anchorOf, isExternal, pageOf, siteLink } from "./links.ts";
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

/** Makes the links of documents to those of the site. */
function rewriteLinks(markdown: MarkdownIt): void {
  markdown.core.ruler.push("denolith-links", ({ tokens, env }) => {
    const from = relative(PAGES, env.realPath ?? env.path);
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const link = token.type === "link_open" ? token.attrGet("href") : null;
      if (link === null || isExternal(link)) continue;
      const { href, isPage } = siteLink(link, from, kindOf);
      token.attrSet("href", href);
      // VitePress loads pages by a script, unless a link has a target. Copies of files are no pages of its.
      if (!isPage) token.attrSet("target", "_self");
    }
  });
}

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

export default {
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
  ignoreDeadLinks: [/^\/source\//], // they are made and checked afterwards
  markdown: { anchor: { slugify: anchorOf }, config: rewriteLinks },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Quick start", link: "/quick-start" },
      { text: "Install", link: "/guides/install" },
      { text: "FAQ", link: "/faq" },
    ],
    sidebar: sidebarOf(
      readFileSync(join(ROOT, "docs/README.md"), "utf8"),
      "docs/README.md",
      kindOf,
    ),
  },
};
