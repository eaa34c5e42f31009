import { assertEquals } from "@std/assert";
import type { PersistentVolume, PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { refusalOf } from "./import_checks.ts";
import type { LvmImport, LvmImportSpec } from "./imports.ts";

/** Returns why an import of a claim of the class `fast` is refused. */
function refusal(spec: Partial<LvmImportSpec>, provisioner?: string): string | undefined {
  const claim = { namespace: "n", name: "c", uid: "u" };
  const from = spec.from ?? "OpenEBS";
  const source = from === "Local" ? { local: { path: "/dev/g/lv" } } : {
    csi: { driver: from === "OpenEBS" ? "local.csi.openebs.io" : "topolvm.io", volumeHandle: "v" },
  };
  const self = {
    metadata: { name: "v1", uid: "i" },
    spec: { driverName: "ours", from, persistentVolume: "pv", claim, ...spec },
  } as LvmImport;
  return refusalOf({
    self,
    volume: undefined,
    persistentVolume: {
      metadata: { name: "pv" },
      spec: { claimRef: claim, ...source },
      status: { phase: "Bound" },
    } as PersistentVolume,
    claim: { metadata: claim, spec: { volumeName: "pv", storageClassName: "fast" } } as PersistentVolumeClaim,
    storageClass: provisioner === undefined ? undefined : { metadata: { name: "fast" }, provisioner } as StorageClass,
    ...{ object: undefined, snapshots: [], isClassShared: false, others: [] },
  });
}

const fast = (parameters: Record<string, string> = {}) => ({ name: "fast", parameters });

Deno.test("refusalOf() lets an import make the class of its claim again, when that is of the driver that it names", () => {
  assertEquals(refusal({}), undefined);
  assertEquals(refusal({ storageClass: fast() }, "local.csi.openebs.io"), undefined);
  assertEquals(refusal({ from: "TopoLVM", storageClass: fast() }, "topolvm.io"), undefined);
  assertEquals(refusal({ storageClass: fast({ "csi.storage.k8s.io/fstype": "xfs" }) }, "ours"), undefined); // by another import
  assertEquals(refusal({ storageClass: fast() }), undefined); // it is made again for another import
});

Deno.test("refusalOf() refuses to replace any other class, or to name secrets", () => {
  const local = "local.csi.openebs.io";
  assertEquals(
    refusal({ storageClass: { name: "gp3", parameters: {} } }, local),
    "StorageClass gp3 is not that of the claim",
  );
  assertEquals(
    refusal({ storageClass: fast() }, "ebs.csi.aws.com"),
    "StorageClass fast is of ebs.csi.aws.com, not of OpenEBS LVM LocalPV",
  );
  assertEquals(
    refusal({ from: "Local", storageClass: fast() }, "kubernetes.io/no-provisioner"),
    "StorageClass fast: the classes of local volumes stay as they are",
  );
  const secret = "csi.storage.k8s.io/node-stage-secret-name";
  assertEquals(
    refusal({ storageClass: fast({ [secret]: "x" }) }, local),
    `StorageClass fast: an import sets no parameter ${secret}`,
  );
});
