/**
 * The files of the page. They are part of the module, so that the executable has them, and nothing is read when it runs.
 *
 * @module
 */

import bars from "./page/bars.js" with { type: "text" };
import dom from "./page/dom.js" with { type: "text" };
import format from "./page/format.js" with { type: "text" };
import icon from "./page/icon.svg" with { type: "text" };
import index from "./page/index.html" with { type: "text" };
import lists from "./page/lists.js" with { type: "text" };
import main from "./page/main.js" with { type: "text" };
import nodesStyle from "./page/nodes.css" with { type: "text" };
import nodes from "./page/nodes.js" with { type: "text" };
import problems from "./page/problems.js" with { type: "text" };
import style from "./page/page.css" with { type: "text" };
import volume from "./page/volume.js" with { type: "text" };
import volumes from "./page/volumes.js" with { type: "text" };

/** A file. */
export interface PageFile {
  /** Its media type. */
  readonly type: string;
  /** Its content. */
  readonly text: string;
}

const script = (text: string): PageFile => ({ type: "text/javascript", text });

/** The files by their paths. */
export const FILES: Readonly<Record<string, PageFile>> = {
  "/": { type: "text/html", text: index },
  "/page.css": { type: "text/css", text: style },
  "/nodes.css": { type: "text/css", text: nodesStyle },
  "/icon.svg": { type: "image/svg+xml", text: icon },
  "/main.js": script(main),
  "/bars.js": script(bars),
  "/dom.js": script(dom),
  "/format.js": script(format),
  "/lists.js": script(lists),
  "/nodes.js": script(nodes),
  "/problems.js": script(problems),
  "/volume.js": script(volume),
  "/volumes.js": script(volumes),
};
