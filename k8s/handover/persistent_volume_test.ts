import { assertEquals } from "@std/assert";
import type { PersistentVolume } from "../api/objects.ts";
import type { LvmMove } from "./moves.ts";
import { affinityTo, nodeOfVolume, recordOf, restoredTo, retainedFor, volumeFrom } from "./persistent_volume.ts";

const MOVE = { metadata: { name: "v", uid: "m" }, spec: { persistentVolume: "pv" } } as LvmMove;
const OBJECT: PersistentVolume = {
  metadata: { name: "pv", uid: "p", labels: { a: "b" }, annotations: { note: "mine" }, finalizers: ["some/one"] },
  spec: { persistentVolumeReclaimPolicy: "Delete", claimRef: { name: "c", uid: "u", resourceVersion: "7" } },
};

/** Returns a PersistentVolume as it is while a move retains it. */
function retained(): PersistentVolume {
  const { metadata, spec } = retainedFor(MOVE, "Delete");
  return {
    metadata: { ...OBJECT.metadata, annotations: { ...OBJECT.metadata.annotations, ...metadata.annotations } },
    spec: { ...OBJECT.spec, ...spec },
  };
}

Deno.test("recordOf() has the policy and the annotations from before an earlier move", () => {
  assertEquals(recordOf(retained()), recordOf(OBJECT));
  assertEquals(recordOf(OBJECT).spec.persistentVolumeReclaimPolicy, "Delete");
});

Deno.test("volumeFrom() makes a PersistentVolume that the move retains, on the node, bound to any revision of the claim", () => {
  const { metadata, spec } = volumeFrom(MOVE, recordOf(OBJECT), "b", "node");
  const { metadata: { annotations, labels, name } } = retained();
  assertEquals(metadata, { name, labels: labels!, annotations: annotations! });
  const matchExpressions = [{ key: "node", operator: "In", values: ["b"] }];
  assertEquals(spec, {
    persistentVolumeReclaimPolicy: "Retain",
    claimRef: { name: "c", uid: "u" },
    nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions }] } },
  });
});

Deno.test("restoredTo() removes what retainedFor() adds", () => {
  const { metadata: { annotations }, spec } = restoredTo("Delete");
  assertEquals(Object.keys(annotations), Object.keys(retainedFor(MOVE, "Delete").metadata.annotations));
  assertEquals([Object.values(annotations), spec], [[null, null], { persistentVolumeReclaimPolicy: "Delete" }]);
  assertEquals(restoredTo(undefined).spec, {});
});

/** Returns the node of a PersistentVolume with terms of an affinity. */
const nodeOf = (...nodeSelectorTerms: object[]) =>
  nodeOfVolume({ spec: { nodeAffinity: { required: { nodeSelectorTerms } } } } as unknown as PersistentVolume, "node");
const expression = { key: "node", operator: "In", values: ["b"] };

Deno.test("nodeOfVolume() is the node of one label alone", () => {
  const [term] = affinityTo("b", "node").required.nodeSelectorTerms;
  assertEquals(nodeOf(term!), "b");
  assertEquals(nodeOfVolume({ spec: {} } as PersistentVolume, "node"), undefined);
  const others = [
    [term!, term!],
    [{ matchExpressions: [expression, expression] }],
    [{ matchExpressions: [expression], matchFields: [{ key: "metadata.name", operator: "In", values: ["b"] }] }],
    ...[{ key: "zone" }, { operator: "NotIn" }, { values: ["b", "c"] }].map((more) => [
      { matchExpressions: [{ ...expression, ...more }] },
    ]),
  ];
  for (const terms of others) assertEquals(nodeOf(...terms), undefined, JSON.stringify(terms));
});
