/**
 * Comparison of the messages that the runbooks quote with those of the driver.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { inlineCode, pieces as piecesOf, sourceText } from "./messages.ts";
import { readRunbooks, runbookChapter } from "./runbooks.ts";

const runbooks = readRunbooks().join("\n");

/** A symptom: the first cell of a table row, or the bold term at the start of a list item. */
const SYMPTOM = /^\| ([^|]*) \||^- \*\*([^*]*)\*\*/gm;

/** Messages of others than the driver: of Kubernetes and of LVM. */
const FOREIGN_MESSAGES = [
  ...["WaitForFirstConsumer", "ExternalProvisioning", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"],
  ...["ReadWriteOncePod", "ContainerCreating", "Terminating", "Forbidden", "kubernetes.io/pvc-protection"],
  "boundVolumeSnapshotContentName",
  "driver name lvm.denolith.dev not found in the list of registered CSI drivers",
  "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
  "field can not be less than status.capacity",
  ...["did not have enough free storage", "had volume node affinity conflict"],
  "MountVolume.NodeAffinity check failed",
];

Deno.test("messages in the runbooks are those of the driver, with … for inserted values", () => {
  const source = sourceText();
  const messages = [
    ...inlineCode(runbooks).filter((quote) => quote.includes("…")),
    ...[...runbooks.matchAll(SYMPTOM)].flatMap(([, cell, term]) => inlineCode(cell ?? term!)).filter((quote) =>
      !/^--|^[A-Z]+$|^kubectl$/.test(quote)
    ),
  ];
  assert(messages.length > 120, "the test sees them");
  const pieces = messages.filter((message) => !FOREIGN_MESSAGES.includes(message)).flatMap((message) =>
    piecesOf(message).map((piece) => [message, piece] as const)
  );
  assertEquals(pieces.filter(([, piece]) => !source.includes(piece)), []);
});

Deno.test("the runbooks name the controllers that exist", () => {
  const source = sourceText();
  const controllers = [
    ...source.matchAll(/\b(?:sidecarController|createController)\(\s*"(\w+)"/g),
    ...source.matchAll(/^ +name: "(\w+)",\n +ownerKind:/gm), // of contents
  ];
  const rows = runbookChapter("Reconcile failing").matchAll(/^\| `(\w+)` +\|/gm);
  const names = (matches: Iterable<RegExpExecArray>) => [...matches].map(([, name]) => name!).sort();
  assertEquals(names(rows), names(controllers));
});
