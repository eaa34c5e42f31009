import { assertEquals } from "@std/assert";
import { adviceFor, reasonOf, withoutReason } from "./symptoms.ts";

const CAUSE = "choosing a volume group: not enough free space in data (1 GiB free) [NoSpace]";

Deno.test("reasonOf() finds the code in events and statuses of Kubernetes' components", () => {
  const rpc = `rpc error: code = ResourceExhausted desc = ${CAUSE}`;
  for (
    const message of [
      CAUSE,
      `failed to provision volume with StorageClass "fast": ${rpc}`, // csi-provisioner
      `resize volume "pvc-1" by resizer "lvm.denolith.dev" failed: ${rpc}`, // csi-resizer
      `Failed to check and update snapshot content: failed to take snapshot of the volume v1-1: "${rpc}"`, // csi-snapshotter
      `MountVolume.SetUp failed for volume "pvc-1" : ${rpc}`, // kubelet
    ]
  ) {
    assertEquals(reasonOf(message), "NoSpace", message);
  }
});

Deno.test("reasonOf() knows the texts of Kubernetes that have no code, and no others", () => {
  assertEquals(reasonOf("0/1 nodes are available: 1 node(s) did not have enough free storage."), "NoCapacity");
  assertEquals(reasonOf('MapVolume.NodeAffinity check failed for volume "pv"'), "VolumeOnOtherNode");
  assertEquals(reasonOf("driver name d not found in the list of registered CSI drivers"), "DriverNotRegistered");
  assertEquals(reasonOf("choosing a volume group: not enough free space in data (1 GiB free)"), undefined);
});

Deno.test("withoutReason() leaves out the code at the end, and no other brackets", () => {
  assertEquals(withoutReason("it is full [NoSpace]"), "it is full");
  assertEquals(withoutReason('failed: "it is full [NoSpace]"'), 'failed: "it is full"');
  assertEquals(withoutReason("it is full [NoSpace], so wait"), "it is full [NoSpace], so wait");
  assertEquals(withoutReason("it is full [Other]"), "it is full [Other]");
});

Deno.test("adviceFor() names the chapter that was asked for, if it describes the reason", () => {
  const runbookOf = (...args: Parameters<typeof adviceFor>) => adviceFor(...args).runbook;
  assertEquals(runbookOf("NoSpace", "snapshot"), "volumesnapshot-not-ready");
  assertEquals(runbookOf("NoSpace", "mount"), "claim-stays-pending");
  assertEquals(adviceFor("SourceNotReady").severity, "info");
  assertEquals([adviceFor("CommandFailed"), adviceFor("toString")], [{}, {}]);
});

Deno.test("adviceFor(): what is in use may be mounted or expanded, and nobody says that it is deleted", () => {
  for (const chapter of ["mount", "expansion", undefined] as const) {
    assertEquals(adviceFor("InUse", chapter).remedy?.includes("deleted"), false, chapter);
  }
});
