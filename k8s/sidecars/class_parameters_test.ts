import { assertEquals, assertThrows } from "@std/assert";
import { ClaimError, readClassParameters, readSnapshotClassParameters } from "./class_parameters.ts";
import type { PersistentVolumeClaim } from "../api/objects.ts";

const CSI = "csi.storage.k8s.io/";
const claim: PersistentVolumeClaim = {
  metadata: {
    name: "data",
    namespace: "team",
    annotations: {
      "example.com/key": "mine",
      "example.com/path": "../../other/secrets/theirs",
      "example.com/template": "${pvc.namespace}",
    },
  },
};
const read = (parameters: Record<string, string>) => readClassParameters(parameters, claim, { volumeName: "pvc-1" });

Deno.test("readClassParameters() keeps Kubernetes' own keys from the driver, and the driver's fsType for both", () => {
  assertEquals(read({ volumeGroup: "vg", [`${CSI}fstype`]: "xfs" }), {
    fsType: "xfs",
    secrets: {},
    parameters: { volumeGroup: "vg" },
  });
  assertEquals(read({ fsType: "btrfs" }), { fsType: "btrfs", secrets: {}, parameters: { fsType: "btrfs" } });
});

Deno.test("readClassParameters() fills the templates of secrets", () => {
  const { secrets } = read({
    [`${CSI}secret-name`]: "common",
    [`${CSI}secret-namespace`]: "system",
    [`${CSI}node-stage-secret-name`]: "${pvc.name}-${pvc.annotations['example.com/key']}",
    [`${CSI}node-stage-secret-namespace`]: "${pvc.namespace}",
    [`${CSI}node-expand-secret-name`]: "${pv.name}",
    [`${CSI}node-expand-secret-namespace`]: "system",
  });
  assertEquals(secrets["node-stage"], { name: "data-mine", namespace: "team" });
  assertEquals(secrets["node-expand"], { name: "pvc-1", namespace: "system" });
  assertEquals(secrets.provisioner, { name: "common", namespace: "system" });
});

Deno.test("readClassParameters() refuses what cannot be meant", () => {
  const cases: [Record<string, string>, string][] = [
    [{ [`${CSI}fstipe`]: "xfs" }, "no such key"],
    [{ [`${CSI}fstype`]: "xfs", fsType: "ext4" }, "named twice"],
    [{ [`${CSI}provisioner-secret-name`]: "a" }, "one of them is missing"],
    [{ [`${CSI}provisioner-secret-namespace`]: "a" }, "one of them is missing"],
    [{ [`${CSI}provisioner-secret-name`]: "a", [`${CSI}provisioner-secret-namespace`]: "" }, "one of them is missing"],
    [{ [`${CSI}secret-name`]: "${pvc.nmae}", [`${CSI}secret-namespace`]: "a" }, "is not known here"],
    [{ [`${CSI}secret-name`]: "a", [`${CSI}secret-namespace`]: "${pvc.name}" }, "is not known here"],
    [
      { [`${CSI}secret-name`]: "a", [`${CSI}secret-namespace`]: "${pvc.annotations['example.com/key']}" },
      "is not known here",
    ],
    [{ [`${CSI}secret-name`]: "a", [`${CSI}secret-namespace`]: "team/../other" }, "is not a valid name"],
    [
      { [`${CSI}secret-name`]: "${pvc.annotations['example.com/path']}", [`${CSI}secret-namespace`]: "a" },
      "is not a valid name",
    ],
    [
      { [`${CSI}secret-name`]: "${pvc.annotations['example.com/template']}", [`${CSI}secret-namespace`]: "a" },
      "is not a valid name",
    ],
    [{ [`${CSI}secret-name`]: "A_b", [`${CSI}secret-namespace`]: "a" }, "is not a valid name"],
    [{ [`${CSI}secret-name`]: "a", [`${CSI}secret-namespace`]: "a.b" }, "is not a valid name"],
  ];
  for (const [parameters, message] of cases) assertThrows(() => read(parameters), ClaimError, message);
});

const readSnapshot = (parameters: Record<string, string>) =>
  readSnapshotClassParameters(parameters, { contentName: "snapcontent-1", ownerKind: "VolumeSnapshot" });

Deno.test("readSnapshotClassParameters() keeps Kubernetes' own keys from the driver, and fills the template of the secret", () => {
  const secret = (use: string) => ({
    [`${CSI}${use}-secret-name`]: "${volumesnapshotcontent.name}-x",
    [`${CSI}${use}-secret-namespace`]: "system",
  });
  const others = { ...secret("snapshotter"), ...secret("group-snapshotter"), ...secret("group-snapshotter-get") };
  assertEquals(readSnapshot({ snapSize: "10%", ...others }), {
    parameters: { snapSize: "10%" },
    lookupSecret: undefined,
  });
  assertEquals(readSnapshot(secret("snapshotter-list")).lookupSecret, { name: "snapcontent-1-x", namespace: "system" });
});

Deno.test("readSnapshotClassParameters() refuses what cannot be meant", () => {
  const cases: [Record<string, string>, string][] = [
    [{ [`${CSI}fstype`]: "xfs" }, "no such key"],
    [{ [`${CSI}snapshotter-list-secret-name`]: "a" }, "one of them is missing"],
    [
      { [`${CSI}snapshotter-list-secret-name`]: "${pv.name}", [`${CSI}snapshotter-list-secret-namespace`]: "a" },
      "is not known here",
    ],
  ];
  for (const [parameters, message] of cases) assertThrows(() => readSnapshot(parameters), ClaimError, message);
});
