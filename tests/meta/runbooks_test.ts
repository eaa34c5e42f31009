/**
 * What docs/guides/runbooks.md quotes, compared with what the driver says.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { chapter } from "./markdown.ts";
import { inlineCode, pieces as piecesOf, sourceText } from "./messages.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const runbooks = Deno.readTextFileSync(`${ROOT}docs/guides/runbooks.md`);

/** What others say: Kubernetes' own words, and those of LVM. */
const FOREIGN_MESSAGES = [
  ...["WaitForFirstConsumer", "ExternalProvisioning", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"],
  ...["ReadWriteOncePod", "ContainerCreating", "Terminating", "Forbidden", "kubernetes.io/pvc-protection"],
  "boundVolumeSnapshotContentName",
  "driver name lvm.denolith.dev not found in the list of registered CSI drivers",
  "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
  "field can not be less than status.capacity",
  "did not have enough free storage",
];

Deno.test("messages in the runbooks are those of the driver, … standing for what is put in", () => {
  const source = sourceText();
  const messages = [
    ...inlineCode(runbooks).filter((quote) => quote.includes("…")),
    ...[...runbooks.matchAll(/^\| ([^|]*) \|/gm)].flatMap(([, cell]) => inlineCode(cell!)).filter((quote) =>
      !/^--|^[A-Z]+$|^kubectl$/.test(quote)
    ),
  ];
  assert(messages.length > 40, "the test sees them");
  const pieces = messages.filter((message) => !FOREIGN_MESSAGES.includes(message)).flatMap((message) =>
    piecesOf(message).map((piece) => [message, piece] as const)
  );
  assertEquals(pieces.filter(([, piece]) => !source.includes(piece)), []);
});

Deno.test("the controllers of the runbooks are those that there are", () => {
  const controllers = sourceText().matchAll(/\b(?:sidecarController|createController)\(\s*"(\w+)"/g);
  const rows = chapter(runbooks, "Reconcile failing").matchAll(/^\| `(\w+)` +\|/gm);
  const names = (matches: Iterable<RegExpExecArray>) => [...matches].map(([, name]) => name!).sort();
  assertEquals(names(rows), names(controllers));
});
