/**
 * Commands of the documents, which run unchanged but for placeholders.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { dirname } from "@std/path";
import { shellBlocks } from "../../../meta/markdown.ts";
import { run, searchPath } from "../../../rig/process.ts";
import type { TestNamespace } from "./test_namespace.ts";

/** The first line of a block for a shell on the node. */
const NODE_MARKER = "# on the node\n";

/** A document, whose blocks run in a test namespace with its names in place of the words in capitals. */
export class DocumentCommands {
  readonly #ns: TestNamespace;
  readonly #blocks: readonly string[];
  readonly #names: Readonly<Record<string, string>>;

  /**
   * @param text the document, or a chapter of it
   * @param names the values of the words in capitals, and of others that stand for a value
   */
  constructor(ns: TestNamespace, text: string, names: Readonly<Record<string, string>>) {
    this.#ns = ns;
    // In a list, blocks are indented.
    this.#blocks = shellBlocks(text.replace(/^ {3}/gm, ""));
    this.#names = { NAMESPACE: ns.namespace, NODE: ns.node.name, ...names };
  }

  /**
   * Runs the block that a text is in. @returns its output @throws {Error} when it fails, or keeps a word in capitals
   */
  async runBlock(text: string): Promise<string> {
    const [block, ...more] = this.#blocks.filter((lines) => lines.includes(text));
    assert(block !== undefined && more.length === 0, `there is one block with ${text}`);
    const placeholders = new RegExp(`(?<!\\w)(?:${Object.keys(this.#names).join("|")})(?!\\w)`, "g");
    const lines = block.replace(NODE_MARKER, "").replace(placeholders, (word) => this.#names[word]!);
    const placeholder = /(?<![\w/.-])(?:[A-Z]{2,}|\/dev\/sd[XY])(?![\w.])/.exec(lines.replace(/--output [A-Z,]+/g, ""));
    assertEquals(placeholder, null, `nothing of ${lines} is left to be replaced`);
    return block.startsWith(NODE_MARKER) ? await this.#ns.runOnNode(lines) : await this.#runOnHost(lines);
  }

  async #runOnHost(lines: string): Promise<string> {
    const { kubeconfig, programs } = this.#ns.cluster.controlPlane;
    const env = { KUBECONFIG: kubeconfig, PATH: `${dirname(programs.kubectl)}:${searchPath()}` };
    return await run("play a document", "/bin/sh", ["-ec", lines], { env });
  }
}
