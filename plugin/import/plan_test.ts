import { assertEquals } from "@std/assert";
import { volumeIdOf } from "../../base/ids.ts";
import type { LvmNode } from "../../k8s/api/lvm_objects.ts";
import type {
  KubeObject,
  Lease,
  PersistentVolume,
  PersistentVolumeClaim,
  StorageClass,
} from "../../k8s/api/objects.ts";
import type { LvmImport, OpenEbsVolume, Origin } from "../../k8s/handover/imports.ts";
import { planImport, provisionerRefusal } from "./plan.ts";
import type { ImportOptions, ImportSources } from "./sources.ts";

const KEY = "topology.lvm.denolith.dev/node";
const OPTIONS: ImportOptions = {
  ...{ driver: "lvm.denolith.dev", topologyKey: KEY, now: Date.parse("2026-11-22T12:00:00Z") },
  isProvisionerStopped: true,
  parameterProblem: () => undefined,
};

/** Returns objects as the driver of an origin writes them. */
function sources(origin: Origin, more: Partial<ImportSources> = {}): ImportSources {
  const own = {
    OpenEBS: {
      topologyKey: "openebs.io/nodename",
      source: { csi: { driver: "local.csi.openebs.io", fsType: "xfs", volumeHandle: "pvc-1" } },
      storageClass: { provisioner: "local.csi.openebs.io", parameters: { storage: "lvm", volgroup: "lvmvg" } },
      object: {
        metadata: { name: "pvc-1", namespace: "openebs", uid: "o" },
        spec: { ownerNodeID: "node1", volGroup: "lvmvg", shared: "no", thinProvision: "no" },
      },
    },
    TopoLVM: {
      topologyKey: "topology.topolvm.io/node",
      source: { csi: { driver: "topolvm.io", volumeHandle: "0d43aa8c" } },
      storageClass: { provisioner: "topolvm.io", parameters: { "topolvm.io/device-class": "topo" } },
      object: { metadata: { name: "pvc-1", uid: "o" }, spec: { nodeName: "node1", deviceClass: "topo" } },
    },
    Local: {
      topologyKey: "kubernetes.io/hostname",
      source: { local: { path: "/dev/mapper/data-archive--2019" } },
      storageClass: { provisioner: "kubernetes.io/no-provisioner" },
      object: undefined,
    },
  }[origin];
  return {
    origin,
    claim: {
      metadata: { name: "data", namespace: "shop", uid: "u" },
      spec: { volumeName: "pvc-1" },
      status: { phase: "Bound" },
    } as PersistentVolumeClaim,
    persistentVolume: persistentVolume(own.source, own.topologyKey),
    storageClass: { metadata: { name: "fast" }, ...own.storageClass } as StorageClass,
    object: own.object as KubeObject | undefined,
    lvmNodes: [node("node1", { lvmvg: "g1", topo: "g2", data: "g3" })],
    ...{ volume: undefined, existing: undefined, imports: [], leases: [] },
    ...more,
  };
}

function persistentVolume(source: object, topologyKey: string, spec: object = {}, metadata: object = {}) {
  return {
    metadata: { name: "pvc-1", ...metadata },
    spec: {
      ...source,
      accessModes: ["ReadWriteOnce"],
      capacity: { storage: "1Gi" },
      claimRef: { uid: "u" },
      nodeAffinity: {
        required: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: topologyKey, operator: "In", values: ["node1"] }] }],
        },
      },
      ...spec,
    },
    status: { phase: "Bound" },
  } as PersistentVolume;
}

function node(name: string, groups: Record<string, string>): LvmNode {
  const volumeGroups = Object.entries(groups).map(([group, uuid]) => ({ name: group, uuid }));
  return { metadata: { name }, spec: { driverName: "lvm.denolith.dev" }, status: { volumeGroups } } as LvmNode;
}

/** Returns objects with another spec of the PersistentVolume. */
function withSpec(origin: Origin, spec: object): Partial<ImportSources> {
  const { persistentVolume } = sources(origin);
  return { persistentVolume: { ...persistentVolume, spec: { ...persistentVolume.spec, ...spec } } as PersistentVolume };
}

/** Returns an import that is not finished. */
function importOf(claim: object, logicalVolume: object): LvmImport {
  const spec = { claim: { namespace: "shop", ...claim }, logicalVolume } as LvmImport["spec"];
  return { metadata: { name: "v1-x", uid: "x" }, spec, status: { state: "Imported" } };
}

const EXPECTED = {
  OpenEBS: {
    logicalVolume: { volumeGroupUUID: "g1", name: "pvc-1" },
    volume: { volumeGroups: "lvmvg", fsType: "xfs", shared: false },
    storageClass: { name: "fast", parameters: { volumeGroup: "lvmvg", shared: "no" } },
    object: { name: "pvc-1", namespace: "openebs", uid: "o" },
  },
  TopoLVM: {
    logicalVolume: { volumeGroupUUID: "g2", name: "0d43aa8c" },
    volume: { volumeGroups: "topo", fsType: "ext4", shared: true },
    storageClass: { name: "fast", parameters: { volumeGroup: "topo" } },
    object: { name: "pvc-1", uid: "o" },
  },
  Local: {
    logicalVolume: { volumeGroupUUID: "g3", name: "archive-2019" },
    volume: { volumeGroups: "data", fsType: "ext4", shared: true },
  },
} as const;

for (const [origin, { volume, ...expected }] of Object.entries(EXPECTED)) {
  Deno.test(`planImport() of a volume of ${origin}: its LVMImport names the LV, and what it becomes`, () => {
    const { plan, import: object } = planImport(sources(origin as Origin), OPTIONS);
    assertEquals(plan.refusals, []);
    assertEquals([plan.claim, plan.volume, plan.size, plan.node], [
      "shop/data",
      volumeIdOf("pvc-1"),
      1n << 30n,
      "node1",
    ]);
    assertEquals(object, {
      metadata: { name: volumeIdOf("pvc-1") },
      spec: {
        driverName: "lvm.denolith.dev",
        from: origin as Origin,
        persistentVolume: "pvc-1",
        claim: { namespace: "shop", name: "data", uid: "u" },
        volume: {
          driverName: "lvm.denolith.dev",
          requestName: "pvc-1",
          nodeName: "node1",
          size: "1Gi",
          volumeGroupPreference: "leastFree",
          volumeMode: "Filesystem",
          erase: "zero",
          ...volume,
        },
        ...expected,
      },
    });
  });
}

Deno.test("planImport() of a thin volume keeps it in the pool that it is in", () => {
  const { object } = sources("OpenEBS");
  const thin = { ...object!, spec: { ...(object as OpenEbsVolume).spec, thinProvision: "yes" } } as OpenEbsVolume;
  const openEbs = planImport(sources("OpenEBS", { object: thin }), OPTIONS);
  assertEquals([openEbs.plan.thinPool, openEbs.import?.spec.volume.thinProvision], ["lvmvg_thinpool", true]);
  const topoLvm = planImport(sources("TopoLVM"), { ...OPTIONS, thinPool: "pool0" });
  assertEquals([topoLvm.plan.thinPool, topoLvm.import?.spec.volume.thinPool], ["pool0", "pool0"]);
  assertEquals(topoLvm.import?.spec.storageClass?.parameters, {
    volumeGroup: "topo",
    thinProvision: "yes",
    thinPool: "pool0",
  });
});

Deno.test("planImport() takes what the administrator says", () => {
  const deviceClass = { metadata: { name: "pvc-1", uid: "o" }, spec: { nodeName: "node1", deviceClass: "ssd" } };
  const more = { object: deviceClass as KubeObject };
  const { import: object } = planImport(sources("TopoLVM", more), { ...OPTIONS, volumeGroup: "data", erase: "none" });
  assertEquals(object?.spec.logicalVolume.volumeGroupUUID, "g3");
  assertEquals([object?.spec.volume.erase, object?.spec.storageClass?.parameters.volumeGroup], ["none", "data"]);
});

Deno.test("planImport() names what is lost of a PersistentVolume", () => {
  const { plan } = planImport(
    sources(
      "OpenEBS",
      withSpec("OpenEBS", {
        csi: { ...sources("OpenEBS").persistentVolume.spec!.csi, nodeStageSecretRef: { namespace: "s", name: "key" } },
      }),
    ),
    OPTIONS,
  );
  assertEquals(plan.lost.map(({ name, value }) => [name, value]), [["nodeStageSecretRef", "s/key"]]);
});

Deno.test("planImport() leaves a class of the driver, and one that nobody provisions for", () => {
  const ours = { metadata: { name: "fast" }, provisioner: "lvm.denolith.dev" } as StorageClass;
  for (const from of [sources("OpenEBS", { storageClass: ours }), sources("Local")]) {
    const { plan, import: object } = planImport(from, OPTIONS);
    assertEquals([plan.storageClass, object?.spec.storageClass], [undefined, undefined]);
  }
});

Deno.test("planImport() names a parameter as lost that is not accepted", () => {
  const parameters = { volgroup: "lvmvg", formatOptions: "--bad" };
  const storageClass = { metadata: { name: "fast" }, provisioner: "local.csi.openebs.io", parameters } as StorageClass;
  const { plan } = planImport(sources("OpenEBS", { storageClass }), {
    ...OPTIONS,
    parameterProblem: ({ mkfsOptions = "" }) => mkfsOptions === "--bad" ? "mkfs option --bad: not allowed" : undefined,
  });
  assertEquals(plan.storageClass?.parameters, { volumeGroup: "lvmvg", shared: "no" });
  assertEquals(plan.storageClass?.lost, [
    { name: "mkfsOptions", value: "--bad", why: "mkfs option --bad: not allowed" },
  ]);
});

const { claim, persistentVolume: pv } = sources("OpenEBS");
const deleted = { deletionTimestamp: "now" };

const REFUSALS: readonly [what: string, origin: Origin, objects: Partial<ImportSources>, refusal: string][] = [
  ["without an agent", "OpenEBS", { lvmNodes: [] }, "node node1 has no agent of the driver"],
  [
    "in a group that the agent does not report",
    "OpenEBS",
    { lvmNodes: [node("node1", { data: "g" })] },
    "node node1 does not report volume group lvmvg, but data",
  ],
  [
    "of a device class whose group is not known",
    "TopoLVM",
    { lvmNodes: [node("node1", { data: "g" })] },
    "no object says which volume group the device class topo is: see lvmd's configuration, and name it with --volume-group",
  ],
  [
    "that is a directory",
    "Local",
    withSpec("Local", { local: { path: "/mnt/disks/ssd1" } }),
    "its path is not that of a logical volume: /dev/GROUP/NAME",
  ],
  ["for several nodes", "Local", withSpec("Local", { nodeAffinity: {} }), "names no single node"],
  ["whose object is gone", "OpenEBS", { object: undefined }, "there is no LVMVolume.local.openebs.io of it"],
  [
    "whose object is being deleted",
    "TopoLVM",
    { object: { ...sources("TopoLVM").object!, metadata: { name: "pvc-1", uid: "o", ...deleted } } },
    "its LogicalVolume.topolvm.io is being deleted",
  ],
  [
    "of a claim that is deleted",
    "OpenEBS",
    { claim: { ...claim, metadata: { ...claim.metadata, ...deleted } } },
    "the claim is being deleted",
  ],
  [
    "of a claim that is Lost",
    "OpenEBS",
    { claim: { ...claim, status: { phase: "Lost" } } },
    "the claim is not bound to PersistentVolume pvc-1",
  ],
  [
    "that is being deleted",
    "OpenEBS",
    { persistentVolume: { ...pv, metadata: { name: "pvc-1", ...deleted } } },
    "PersistentVolume pvc-1 is being deleted",
  ],
  [
    "for several nodes at a time",
    "OpenEBS",
    withSpec("OpenEBS", { accessModes: ["ReadWriteMany"] }),
    "a node-local volume is for one node",
  ],
  ["with flags that are not allowed", "OpenEBS", withSpec("OpenEBS", { mountOptions: ["subvol=x"] }), "mount flag"],
  [
    "with an unknown filesystem",
    "OpenEBS",
    withSpec("OpenEBS", { csi: { ...pv.spec!.csi, fsType: "zfs" } }),
    "the driver does not know the filesystem zfs",
  ],
  [
    "that is being imported",
    "OpenEBS",
    { existing: { metadata: { name: "v" }, status: { state: "Switching" } } as LvmImport },
    "it is being imported already (Switching)",
  ],
  [
    "whose LV is being imported for another claim",
    "OpenEBS",
    { imports: [importOf({ uid: "other", name: "twin" }, { volumeGroupUUID: "g1", name: "pvc-1" })] },
    "LVMImport v1-x imports the same logical volume, for claim shop/twin",
  ],
  [
    "whose claim is being imported under another name",
    "TopoLVM",
    { imports: [importOf({ uid: "u", name: "data" }, { volumeGroupUUID: "g9", name: "lv" })] },
    "LVMImport v1-x imports the same claim, for claim shop/data",
  ],
];

for (const [what, origin, objects, refusal] of REFUSALS) {
  Deno.test(`a volume of ${origin} ${what} is refused`, () => {
    const { plan, import: object } = planImport(sources(origin, objects), OPTIONS);
    assertEquals(
      [plan.refusals.some((each) => each.includes(refusal)), object],
      [true, undefined],
      plan.refusals.join(),
    );
  });
}

/** Returns a Lease of the provisioner of OpenEBS. */
function lease(renewTime: string, holderIdentity = "p"): Lease {
  return {
    metadata: { name: "local-csi-openebs-io", namespace: "openebs" },
    spec: { holderIdentity, leaseDurationSeconds: 15, renewTime },
  } as Lease;
}

Deno.test("provisionerRefusal() believes a Lease, and an administrator where there is none", () => {
  const refusal = (leases: Lease[], isProvisionerStopped = false, origin: Origin = "OpenEBS") =>
    provisionerRefusal({ origin, leases }, { ...OPTIONS, isProvisionerStopped });
  const running =
    "the provisioner of OpenEBS LVM LocalPV runs: p renews Lease openebs/local-csi-openebs-io; scale it to zero";
  assertEquals(refusal([lease("2026-11-22T11:59:55Z")]), running);
  assertEquals(refusal([lease("2026-11-22T11:59:55Z")], true), running);
  assertEquals(refusal([lease("2026-11-22T11:59:00Z")]), undefined);
  assertEquals(refusal([lease("2026-11-22T11:59:55Z", "")]), undefined);
  assertEquals(refusal([])?.endsWith("add --provisioner-stopped"), true);
  assertEquals(refusal([], true), undefined);
  assertEquals(refusal([], false, "Local"), undefined);
});

Deno.test("an import of the same LV that is finished keeps nobody from another one", () => {
  const other = importOf({ uid: "other", name: "twin" }, { volumeGroupUUID: "g1", name: "pvc-1" });
  const { plan } = planImport(sources("OpenEBS", { imports: [{ ...other, status: { state: "Failed" } }] }), OPTIONS);
  assertEquals(plan.refusals, []);
});
