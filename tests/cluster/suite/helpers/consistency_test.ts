import { assertEquals } from "@std/assert";
import type { LvmVolume } from "../../../../k8s/api/lvm_objects.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../../../../k8s/api/objects.ts";
import { PENDING_ANNOTATION } from "../../../../k8s/api/lvm_objects.ts";
import { volumeIdOf, volumeLvName } from "../../../../base/ids.ts";
import { volumeTags } from "../../../../lvm/model/tags.ts";
import { apiInconsistencies, type LogicalVolume, lvmInconsistencies } from "./consistency.ts";
import { DRIVER } from "./objects.ts";

const id = (uid: string) => volumeIdOf(`pvc-${uid}`);

function claim(uid: string, phase = "Bound"): PersistentVolumeClaim {
  return {
    metadata: { name: `c-${uid}`, namespace: "n", uid },
    spec: { ...(phase === "Bound" ? { volumeName: `pvc-${uid}` } : {}) },
    status: { phase },
  };
}

function volume(uid: string): PersistentVolume {
  return {
    metadata: { name: `pvc-${uid}` },
    spec: { claimRef: { uid }, csi: { driver: DRIVER, volumeHandle: id(uid) } },
  };
}

function object(uid: string, annotations: Record<string, string> = {}): LvmVolume {
  const status = { state: "Ready", volumeGroup: "data", lvName: volumeLvName(id(uid)), lvUUID: `uuid-${uid}` } as const;
  return { metadata: { name: id(uid), annotations }, spec: {} as LvmVolume["spec"], status };
}

function lv(uid: string, name = volumeLvName(id(uid))): LogicalVolume {
  const tags = volumeTags(DRIVER, {
    id: id(uid),
    format: { state: "unformatted", type: "ext4" },
    mkfsOptions: [],
    shared: true,
    erase: "zero",
  });
  return { group: "data", name, uuid: `uuid-${uid}`, tags };
}

const state = (uid: string) => ({ claims: [claim(uid)], volumes: [volume(uid)], objects: [object(uid)] });
const uids = new Set(["a", "b"]);

Deno.test("the state is consistent when a bound claim has one of each, and a deleted claim has none", () => {
  assertEquals(apiInconsistencies(state("a"), uids), []);
  assertEquals(lvmInconsistencies(state("a"), { lvs: [lv("a")], groupTags: [] }, uids), []);
});

Deno.test("apiInconsistencies() reports what is left of a deleted claim, and ignores other volumes", () => {
  const { claims, volumes, objects } = state("a");
  const more = {
    claims,
    volumes: [...volumes, volume("b"), volume("other")],
    objects: [...objects, object("b"), object("other")],
  };
  assertEquals(apiInconsistencies(more, uids), ["PersistentVolume pvc-b: no claim", `LVMVolume ${id("b")}: no claim`]);
});

Deno.test("apiInconsistencies() reports an unfinished claim, and what is missing", () => {
  const { volumes, objects } = state("a");
  const inconsistencies = (change: Partial<ReturnType<typeof state>>) =>
    apiInconsistencies({ ...state("a"), ...change }, uids);
  assertEquals(inconsistencies({ claims: [claim("a", "Pending")] }), ["claim c-a: Pending"]);
  assertEquals(inconsistencies({ volumes: [] }), ["claim c-a: 0 PersistentVolumes"]);
  assertEquals(inconsistencies({ volumes: [...volumes, { ...volume("a"), metadata: { name: "twin" } }] }), [
    "claim c-a: 2 PersistentVolumes",
  ]);
  assertEquals(inconsistencies({ objects: [] }), ["claim c-a: its LVMVolume is missing"]);
  assertEquals(inconsistencies({ objects: [{ ...objects[0]!, status: { state: "Pending" } }] }), [
    "claim c-a: its LVMVolume is Pending",
  ]);
  assertEquals(inconsistencies({ objects: [object("a", { [PENDING_ANNOTATION]: "a" })] }), [
    `LVMVolume ${id("a")}: still marked as pending`,
  ]);
});

Deno.test("lvmInconsistencies() reports missing, duplicate and left LVs, and wrong records", () => {
  const inconsistencies = (lvs: LogicalVolume[], groupTags: string[] = []) =>
    lvmInconsistencies(state("a"), { lvs, groupTags }, uids);
  assertEquals(inconsistencies([]), [`volume ${id("a")}: 0 LVs: `]);
  assertEquals(inconsistencies([lv("a"), lv("a", "twin")]).length, 1);
  assertEquals(inconsistencies([lv("a"), lv("b")]).length, 1);
  assertEquals(inconsistencies([lv("a"), { ...lv("b", "erasing"), tags: [`denolith.deleted=${id("b")}`] }]).length, 1);
  assertEquals(inconsistencies([{ ...lv("a"), uuid: "another" }]).length, 1);
  assertEquals(inconsistencies([{ ...lv("a"), group: "small" }]).length, 1);
  assertEquals(inconsistencies([{ ...lv("a"), tags: [] }]).length, 1);
  assertEquals(inconsistencies([lv("a")], [`denolith.used=${DRIVER}:${id("b")}:uuid-b`]).length, 1);
  assertEquals(inconsistencies([lv("a")], [`denolith.used=${DRIVER}:${id("a")}:uuid-a`]), []);
});
