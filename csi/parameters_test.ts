import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../lvm/error.ts";
import { parseGroupList, parseSnapshotParameters, parseVolumeParameters } from "./parameters.ts";

function groupsOf(parameters: Record<string, string>): string[] {
  const { groups } = parseVolumeParameters(parameters);
  return ["data", "data-1", "my-data", "fast"].filter((name) => groups.matches(name));
}

Deno.test("groups: by name, by a pattern of the whole name, and by OpenEBS's unanchored pattern", () => {
  assertEquals(groupsOf({}), ["data", "data-1", "my-data", "fast"]);
  assertEquals(groupsOf({ volumeGroup: "data" }), ["data"]);
  assertEquals(groupsOf({ volgroup: "data" }), ["data"]);
  assertEquals(groupsOf({ volumeGroupPattern: "data.*" }), ["data", "data-1"]);
  assertEquals(groupsOf({ vgpattern: "data" }), ["data", "data-1", "my-data"]);
  assertEquals(groupsOf({ vgPattern: "^data$" }), ["data"]);
});

Deno.test("a StorageClass of OpenEBS LVM LocalPV works as it is", () => {
  const parameters = parseVolumeParameters({
    storage: "lvm",
    volgroup: "lvmvg",
    fsType: "xfs",
    shared: "no",
    thinProvision: "no",
    scheduler: "SpaceWeighted",
  });
  assertEquals([parameters.type, parameters.shared, parameters.groups.matches("lvmvg")], ["xfs", false, true]);
});

Deno.test("what Kubernetes' sidecars add is not ours to read", () => {
  assertEquals(parseVolumeParameters({ "csi.storage.k8s.io/pvc/name": "x" }).type, "ext4");
});

Deno.test("an unknown parameter is refused, and the nearest known one is named", () => {
  const error = assertThrows(() => parseVolumeParameters({ mkfsOption: "-m 0" }), StorageError, "mkfsOptions");
  assertEquals(error.kind, "InvalidArgument");
  assertThrows(() => parseVolumeParameters({ fsType: "xfs", fstype: "ext4" }), StorageError, "given twice");
  assertThrows(() => parseVolumeParameters({ VolumeGroup: "a" }), StorageError, "volumeGroup");
});

Deno.test("parseGroupList() takes names and patterns, also one with a comma in it", () => {
  const groups = parseGroupList("data, /fast-[0-9]{1,2}/");
  assertEquals(["data", "fast-1", "fast-12", "fast-123", "data2"].filter((name) => groups.matches(name)), [
    "data",
    "fast-1",
    "fast-12",
  ]);
  for (const bad of ["", " , ", "a b", "../x", "/(/", "@all"]) assertThrows(() => parseGroupList(bad), StorageError);
});

Deno.test("parseSnapshotParameters() takes a percentage or a quantity", () => {
  assertEquals(parseSnapshotParameters({}), { percent: 100n });
  assertEquals(parseSnapshotParameters({ snapSize: "20%" }), { percent: 20n });
  assertEquals(parseSnapshotParameters({ snapsize: "1Gi" }), { bytes: 1n << 30n });
  for (const snapSize of ["0%", "101%", "0", "-1", "20 %", "lots", ""]) {
    assertThrows(() => parseSnapshotParameters({ snapSize }), StorageError, "snapSize");
  }
});

Deno.test("the text of a class's groups is a list that means the same, and nobody escapes from a pattern", () => {
  for (const given of [{ volumeGroup: "data" }, { volumeGroupPattern: "data.*" }, { vgpattern: "a$|^f" }]) {
    const { groups } = parseVolumeParameters(given);
    const again = parseGroupList(String(groups));
    const matched = groupsOf(given);
    assertEquals(["data", "data-1", "my-data", "fast"].filter((name) => again.matches(name)), matched);
  }
  for (const given of [{ vgpattern: "a)|(b" }, { volumeGroupPattern: "a/b" }, { vgpattern: "/" }]) {
    assertThrows(() => parseVolumeParameters(given), StorageError);
  }
});
