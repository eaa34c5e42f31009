import { assertEquals } from "@std/assert";
import { volumeIdOf } from "../../base/ids.ts";
import { Locks } from "../../base/locks.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import { importedCondition } from "../api/volume_conditions.ts";
import type { ImportedLvSpec, LvmVolume } from "../api/lvm_objects.ts";
import { VolumeImports, type VolumeImportsOptions } from "./volume_imports.ts";

const IMPORTS: ImportedLvSpec = { volumeGroupUUID: "g", lvName: "lv", action: "Return" };

/** Returns the LVMVolume, with what its agent is to do. */
function objectOf(action: ImportedLvSpec["action"], resourceVersion: string): LvmVolume {
  const spec = { driverName: "d", nodeName: "a", imports: { ...IMPORTS, action } };
  return { metadata: { name: volumeIdOf("pvc"), uid: "u", resourceVersion }, spec } as unknown as LvmVolume;
}

/** Returns the LV of an object that becomes another one meanwhile. @returns the reasons that were written */
async function returnWhile(now: LvmVolume): Promise<(string | undefined)[]> {
  const written: (string | undefined)[] = [];
  const client = {
    get: () => Promise.resolve(now),
    patch: (_: unknown, _at: unknown, { merge, resourceVersion }: { merge: LvmVolume; resourceVersion: string }) => {
      if (resourceVersion !== now.metadata.resourceVersion) {
        return Promise.reject(new ApiError("it was changed", { status: 409, reason: "Conflict" }));
      }
      written.push(importedCondition(merge)?.reason);
      return Promise.resolve(now);
    },
  } as unknown as ApiClient;
  const imports = new VolumeImports({
    ...{ client, locks: new Locks(), onChange: () => {} },
    importedVolumes: { return: () => Promise.resolve() },
  } as unknown as VolumeImportsOptions);
  await imports.reconcile(objectOf("Return", "1"), IMPORTS);
  return written;
}

Deno.test("VolumeImports writes what became of a request into an object that was changed meanwhile, unless it asks for something else", async () => {
  assertEquals(await returnWhile(objectOf("Return", "1")), ["Returned"]);
  assertEquals(await returnWhile(objectOf("Return", "2")), ["Returned"]);
  assertEquals(await returnWhile(objectOf("Import", "2")), []);
});
