import { assertEquals } from "@std/assert";
import { type ApiClient, ApiError } from "../client/client.ts";
import { LVM_VOLUME_FINALIZER, type LvmVolume } from "../api/lvm_objects.ts";
import { createOnce, forgetVolume } from "./writes.ts";
import { lvmMoves } from "./moves.ts";

const VOLUME = {
  metadata: { name: "v", uid: "u", resourceVersion: "1", finalizers: [LVM_VOLUME_FINALIZER, "other"] },
} as LvmVolume;
const FREE = { metadata: { ...VOLUME.metadata, finalizers: ["other"] } } as LvmVolume;

/** Forgets a volume. @param patch what the API server answers to a patch @returns the calls */
async function forgotten(volume: LvmVolume, patch: () => Promise<LvmVolume>): Promise<string[]> {
  const calls: string[] = [];
  const called = (name: string, answer: () => Promise<unknown>) => (_: unknown, _name: unknown, options: object) => {
    calls.push(`${name} ${JSON.stringify(options)}`);
    return answer();
  };
  const client = { patch: called("patch", patch), delete: called("delete", () => Promise.resolve()) };
  await forgetVolume(client as unknown as ApiClient, volume);
  return calls;
}

const refusal = (status: number, reason: string) => () => Promise.reject(new ApiError(reason, { status, reason }));

Deno.test("forgetVolume() removes the finalizer, and only then the volume", async () => {
  const patched = `patch ${JSON.stringify({ merge: { metadata: { finalizers: ["other"] } }, resourceVersion: "1" })}`;
  const deleted = 'delete {"uid":"u"}';
  assertEquals(await forgotten(VOLUME, () => Promise.resolve(FREE)), [patched, deleted]);
  assertEquals(await forgotten(FREE, () => Promise.resolve(FREE)), [deleted]);
  // with the finalizer, its agent would take the deletion for its own
  assertEquals(await forgotten(VOLUME, refusal(409, "Conflict")), [patched]);
  assertEquals(await forgotten(VOLUME, refusal(404, "NotFound")), [patched]);
});

Deno.test("createOnce() leaves an object that exists, and fails for any other reason", async () => {
  const create = (status: number, reason: string) =>
    createOnce({ create: refusal(status, reason) } as unknown as ApiClient, lvmMoves, {} as never)
      .then(() => "done", (error) => error.message);
  assertEquals(await create(409, "AlreadyExists"), "done");
  assertEquals(await create(404, "NotFound"), "NotFound");
});
