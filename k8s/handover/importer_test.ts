import { assertEquals } from "@std/assert";
import { DRIVER } from "../../tests/fake/cluster/control_plane.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import type { KubeObject, PersistentVolume, Resource, StorageClass } from "../api/objects.ts";
import { Importer, type ImporterOptions } from "./importer.ts";
import { IMPORT_FINALIZER, type LvmImport, type LvmImportStatus, REPLACED_CLASS_ANNOTATION } from "./imports.ts";
import { recordOf } from "./persistent_volume.ts";

const PV = {
  metadata: { name: "pv", uid: "p" },
  spec: { csi: { driver: "local.csi.openebs.io", volumeHandle: "lv" }, persistentVolumeReclaimPolicy: "Delete" },
} as PersistentVolume;
const CLASS: StorageClass = {
  metadata: { name: "fast", annotations: { [REPLACED_CLASS_ANNOTATION]: "{}" } },
  provisioner: DRIVER,
};
const RECORD: LvmImportStatus = {
  persistentVolume: recordOf(PV),
  storageClass: { metadata: {}, provisioner: "local.csi.openebs.io" },
};

/** Returns the import of the claim `c`. */
function importOf(name: string, status: LvmImportStatus, metadata: object = {}): LvmImport {
  return {
    metadata: { name, uid: name, resourceVersion: "1", finalizers: [IMPORT_FINALIZER], ...metadata },
    spec: {
      ...{ driverName: DRIVER, from: "OpenEBS", persistentVolume: "pv" },
      claim: { namespace: "n", name: "c", uid: "u" },
      logicalVolume: { volumeGroupUUID: "g", name: "lv" },
      volume: { nodeName: "a" },
      storageClass: { name: "fast", parameters: {} },
    } as unknown as LvmImport["spec"],
    status,
  };
}

/** Reconciles the first of some imports, of which its cache has no other. @returns what was written, one line each */
async function reconcile(imports: readonly [LvmImport, ...LvmImport[]]): Promise<string[]> {
  const [self] = imports;
  const writes: string[] = [];
  const objects: Record<string, KubeObject | undefined> = {
    [`lvmimports/${self.metadata.name}`]: self,
    "persistentvolumes/pv": PV,
    "storageclasses/fast": CLASS,
  };
  const write = (verb: string) => ({ plural }: Resource, { name }: { name: string }, { merge }: { merge?: object }) => {
    writes.push(`${verb} ${plural} ${name} ${JSON.stringify(merge)}`);
    return Promise.resolve(self);
  };
  const client = {
    get: ({ plural }: Resource, { name }: { name: string }) => {
      const found = objects[`${plural}/${name}`];
      return found ? Promise.resolve(found) : Promise.reject(new ApiError("gone", { status: 404, reason: "NotFound" }));
    },
    list: () => Promise.resolve({ items: imports, resourceVersion: "1" }),
    ...{ patch: write("patch"), delete: write("delete") },
  } as unknown as ApiClient;
  const cache = { list: () => [self], get: () => undefined };
  const options = {
    client,
    driverName: DRIVER,
    topologyKey: "node",
    imports: cache,
    snapshots: cache,
    lvmNodes: cache,
  };
  const events = { record: () => {} };
  await new Importer({ ...options, events } as unknown as ImporterOptions).reconcile(self.metadata.name);
  return writes;
}

const UNDONE = importOf("undone", { ...RECORD, state: "Undoing", message: "" }, { deletionTimestamp: "now" });

Deno.test("an import that is undone leaves the class to another one that the cache does not show yet", async () => {
  assertEquals(await reconcile([UNDONE]), ["delete storageclasses fast undefined"]);
  assertEquals(await reconcile([UNDONE, importOf("other", RECORD)]), [
    'patch lvmimports undone {"metadata":{"finalizers":[]}}',
  ]);
});

Deno.test("an import that has changed nothing is refused for another one of its claim that the cache does not show yet", async () => {
  const writes = await reconcile([importOf("new", {}), importOf("earlier", RECORD)]);
  assertEquals(
    writes.some((line) => line.includes("LVMImport earlier imports the same claim")),
    true,
    writes.join("\n"),
  );
});
