import { assert, assertEquals, assertThrows } from "@std/assert";
import { problemsOf } from "./check.ts";
import { copiesFor } from "./copies.ts";
import { anchorOf, type KindOf, pageOf, siteLink } from "./links.ts";
import { kindOf, ROOT } from "./repository.ts";
import { sidebarOf } from "./sidebar.ts";
import { driverPackages } from "../sbom.ts";

const FILES: Readonly<Record<string, string>> = {
  "docs/guides/install.md": "",
  "docs/pictures/ui.png": "",
  "deploy/examples/README.md": "",
  "deploy/examples/pod/README.md": "",
  "deploy/examples/pod/pod.yaml": "kind: Pod <&>",
  "lvm/exec.ts": "",
};

/** Returns what is at a path of a small repository. */
const smallRepository: KindOf = (path) =>
  path in FILES ? "file" : Object.keys(FILES).some((file) => file.startsWith(`${path}/`)) ? "folder" : undefined;

Deno.test("pageOf() gives documents a page, and README.md that of its folder", () => {
  const pages = [
    "docs/README.md",
    "docs/adr/README.md",
    "docs/guides/install.md",
    "deploy/examples/pod/README.md",
    "deploy/chart/README.md",
  ];
  assertEquals(pages.map(pageOf), [
    "index.md",
    "adr/index.md",
    "guides/install.md",
    "examples/pod/index.md",
    "chart/index.md",
  ]);
  assertEquals(["CHANGELOG.md", "README.md", "lvm/exec.ts"].map(pageOf), [
    "changelog.md",
    undefined,
    undefined,
  ]);
});

Deno.test("siteLink() leads to pages, and to copies of what has none", () => {
  const from = "docs/guides/snapshots.md";
  const linkOf = (link: string) => siteLink(link, from, smallRepository);
  assertEquals(linkOf("install.md#check"), {
    href: "/guides/install.md#check",
    isPage: true,
  });
  assertEquals(linkOf("../../deploy/examples/pod/"), {
    href: "/examples/pod/index.md",
    isPage: true,
  });
  assertEquals(linkOf("../../lvm/exec.ts"), {
    href: "/source/lvm/exec.ts.html",
    isPage: false,
  });
  assertEquals(linkOf("../../lvm"), {
    href: "/source/lvm/index.html",
    isPage: false,
  });
  assertThrows(
    () => linkOf("../reference/gone.md"),
    Error,
    "docs/guides/snapshots.md: the link ../reference/gone.md",
  );
});

Deno.test("anchorOf() makes the anchors of a Git forge", () => {
  assertEquals(
    anchorOf("What `sync` does: a second, or more"),
    "what-sync-does-a-second-or-more",
  );
});

Deno.test("copiesFor() copies what pages link to, and the files of a folder", () => {
  const page =
    '<a href="/d/source/deploy/examples/pod/index.html">pod</a> <a href="/d/source/lvm/exec.ts.html#x">exec</a>';
  const copies = copiesFor([page], "/d/", {
    kindOf: smallRepository,
    textOf: (path) => FILES[path]!,
    namesIn: () => ["README.md", "pod.yaml"],
  });
  assertEquals([...copies.keys()], [
    "source/deploy/examples/pod/index.html",
    "source/lvm/exec.ts.html",
    "source/deploy/examples/pod/pod.yaml.html",
  ]);
  const [folder, , file] = [...copies.values()];
  assert(
    folder!.includes('<a href="/d/examples/pod/index.html">README.md</a>'),
    folder,
  );
  assert(
    folder!.includes(
      '<a href="/d/source/deploy/examples/pod/pod.yaml.html">pod.yaml</a>',
    ),
    folder,
  );
  assert(file!.includes("<pre>kind: Pod &lt;&amp;></pre>"), file);
});

Deno.test("problemsOf() finds links to nothing, and what is loaded from another host", () => {
  const files = new Map([
    [
      "index.html",
      '<h1 id="top">A</h1><a href="/d/guides/a.html#b">b</a><a href="https://example.com">e</a>',
    ],
    [
      "guides/a.html",
      '<a id="b" href="../">up</a><a href="/d/#top">top</a><img src="p.png"><link href="/d/s.css">',
    ],
    ["guides/p.png", undefined],
    [
      "s.css",
      "a { background: url(data:image/png;base64,AA) } @font-face { src: url(/d/f.woff2) }",
    ],
  ]);
  assertEquals(problemsOf(files, "/d/"), []);
  files.set(
    "index.html",
    '<a href="/d/guides/a.html#c"></a><a href="/guides/a.html"></a><a href="#gone"></a><script src="https://example.com/a.js"></script>',
  );
  files.set(
    "s.css",
    "@import 'https://example.com/b.css'; a { background: url(//example.com/c.png) }",
  );
  assertEquals(problemsOf(files, "/d/"), [
    "index.html: no heading is at /d/guides/a.html#c",
    "index.html: nothing is at /guides/a.html",
    "index.html: no heading is at #gone",
    "index.html loads https://example.com/a.js",
    "guides/a.html: no heading is at /d/#top",
    "s.css loads https://example.com/b.css",
    "s.css loads //example.com/c.png",
  ]);
});

Deno.test("sidebarOf() makes a group of each chapter, with its links, and without its pictures", () => {
  const text =
    "# All\n\n## Guides\n\n- [install it](guides/install.md), [denolith x](../lvm)\n\n![ui](pictures/ui.png)\n";
  assertEquals(sidebarOf(text, "docs/README.md", smallRepository), [{
    text: "Guides",
    collapsed: false,
    items: [
      { text: "Install it", link: "/guides/install.md" },
      { text: "denolith x", link: "/source/lvm/index.html" },
    ],
  }]);
});

Deno.test("the sidebar has the links of docs/README.md", () => {
  const groups = sidebarOf(
    Deno.readTextFileSync(`${ROOT}docs/README.md`),
    "docs/README.md",
    kindOf,
  );
  const items = groups.flatMap(({ items }) => items);
  assert(
    items.some(({ text, link }) => text === "Sizing" && link === "/guides/sizing.md"),
  );
  assertEquals(
    new Set(items.map(({ link }) => link)).size,
    items.length,
    "no page is in it twice",
  );
});

Deno.test("VitePress and its packages are not among those of the driver", async () => {
  const { dependencies } = JSON.parse(
    Deno.readTextFileSync(`${ROOT}deploy/site/vitepress/package.json`),
  );
  assertEquals(Object.keys(dependencies), ["vitepress", "vue"]);
  const names = [...(await driverPackages()).packages.values()].map(({ name }) => name);
  assertEquals(
    names.filter((name) => /^(?:vitepress|vue|vite|rollup|htmlparser2|@vue\/.*)$/.test(name)),
    [],
  );
});
