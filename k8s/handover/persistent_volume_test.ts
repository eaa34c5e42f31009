import { assertEquals } from "@std/assert";
import type { ApiClient } from "../client/client.ts";
import type { PersistentVolume } from "../api/objects.ts";
import type { Handover } from "./handover.ts";
import { type LvmMove, marksOf, MOVE_MARKS } from "./moves.ts";
import {
  affinityTo,
  bindingWait,
  nodeOfVolume,
  recordOf,
  restorePolicy,
  retain,
  volumeFrom,
} from "./persistent_volume.ts";

const HANDOVER = { metadata: { name: "v", uid: "m" }, spec: { persistentVolume: "pv" } } as Handover;
const OBJECT: PersistentVolume = {
  metadata: { name: "pv", uid: "p", labels: { a: "b" }, annotations: { note: "mine" }, finalizers: ["some/one"] },
  spec: { persistentVolumeReclaimPolicy: "Delete", claimRef: { name: "c", uid: "u", resourceVersion: "7" } },
};
const MARKS = marksOf({ ...HANDOVER, status: { persistentVolume: recordOf(OBJECT) } } as LvmMove);

/** Returns a PersistentVolume as it is after a change. */
async function changed(object: PersistentVolume, change: (client: ApiClient) => Promise<void>) {
  let { metadata, spec } = object;
  const patch = (_: unknown, _name: unknown, { merge }: { merge: PersistentVolume }) => {
    const annotations = Object.entries({ ...metadata.annotations, ...merge.metadata.annotations });
    metadata = { ...metadata, annotations: Object.fromEntries(annotations.filter(([, value]) => value !== null)) };
    spec = { ...spec, ...merge.spec };
    return Promise.resolve();
  };
  await change({ patch } as unknown as ApiClient);
  return { metadata, spec: spec! };
}

Deno.test("recordOf() has the policy and the annotations from before an earlier move", async () => {
  const retained = await changed(OBJECT, (client) => retain(client, OBJECT, MARKS));
  assertEquals(retained.spec.persistentVolumeReclaimPolicy, "Retain");
  assertEquals(recordOf(retained), recordOf(OBJECT));
  assertEquals(recordOf(OBJECT).spec.persistentVolumeReclaimPolicy, "Delete");
});

Deno.test("volumeFrom() makes a PersistentVolume that is retained, bound to any revision of the claim", () => {
  const more = { annotations: MARKS, spec: { nodeAffinity: affinityTo("b", "node") } };
  const { metadata, spec } = volumeFrom(HANDOVER, recordOf(OBJECT), more);
  assertEquals(metadata, { name: "pv", labels: { a: "b" }, annotations: { note: "mine", ...MARKS } });
  assertEquals(spec, {
    persistentVolumeReclaimPolicy: "Retain",
    claimRef: { name: "c", uid: "u" },
    nodeAffinity: affinityTo("b", "node"),
  });
});

Deno.test("restorePolicy() removes what retain() adds", async () => {
  const retained = await changed(OBJECT, (client) => retain(client, OBJECT, MARKS));
  const restored = await changed(retained, (client) => restorePolicy(client, retained, "Delete", MOVE_MARKS));
  assertEquals(restored, { metadata: OBJECT.metadata, spec: OBJECT.spec! });
  const unknown = await changed(retained, (client) => restorePolicy(client, retained, undefined, MOVE_MARKS));
  assertEquals([unknown.metadata, unknown.spec], [OBJECT.metadata, retained.spec]);
});

Deno.test("bindingWait() waits until both the claim and its PersistentVolume are bound, if the claim is there", () => {
  const self = { spec: { claim: { namespace: "n", name: "c", uid: "u" } } } as Handover;
  const waits = (claimPhase: string, phase: string | undefined, uid = "u") => {
    const persistentVolume = phase === undefined ? undefined : { ...OBJECT, status: { phase } };
    const claim = { metadata: { name: "c", uid }, status: { phase: claimPhase } };
    return bindingWait({ self, volume: undefined, persistentVolume, claim }) !== undefined;
  };
  assertEquals(waits("Bound", "Bound"), false);
  assertEquals([waits("Lost", "Bound"), waits("Bound", "Available"), waits("Bound", undefined)], [true, true, true]);
  assertEquals(waits("Pending", "Available", "another"), false);
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
