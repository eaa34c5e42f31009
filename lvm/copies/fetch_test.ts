import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import type { CopyBase } from "../model/tags.ts";
import { fetchRange } from "./fetch.ts";
import type { CopyState } from "./plan.ts";
import type { CopyWork } from "./work.ts";

const SIZE = 512n << 20n;

/** Fetches a range of a snapshot whose LV has a UUID. @returns the tags that were changed */
async function fetch(work: CopyWork, uuid: string, base?: CopyBase): Promise<string[]> {
  const source = { kind: "volume", id: volumeIdOf("source") };
  const destination = { lv: { devicePath: "/dev/mapper/copy", size: SIZE } };
  const copy = { id: volumeIdOf("copy"), tags: { source }, destination, ...(base && { base }) } as unknown as CopyState;
  const tags: string[] = [];
  const step = { do: "fetch", node: "a", recorded: 0n, offset: work.offset ?? 0n, length: SIZE / 2n } as const;
  const remote = {
    fetch: () => Promise.resolve({ size: SIZE, uuid, end: step.offset + SIZE / 2n, received: 0 }),
  };
  const changeTags = (changes: readonly string[]) => Promise.resolve(void tags.push(...changes));
  await fetchRange(step, { copy, work, skipsZeros: false }, { remote, changeTags });
  return tags;
}

Deno.test("fetchRange() does not go on with another snapshot of the same id: data of two moments is never mixed", async () => {
  const id = snapshotIdOf("round");
  const [first, work]: [CopyBase, CopyWork] = [{ id, uuid: "first" }, {}];
  assertEquals(await fetch(work, "first", { id }), [
    "--deltag",
    `denolith.base=${id}`,
    "--addtag",
    `denolith.base=${id}:first`,
  ]);
  assertEquals([await fetch({}, "first", first), work.offset], [[], SIZE / 2n]);
  const known: CopyWork = {};
  assertEquals(await fetch(known, "first"), []);
  for (const [work, base] of [[{}, first], [known, undefined]] as const) {
    const { offset } = work as CopyWork;
    const error = await assertRejects(() => fetch(work, "second", base), StorageError, "it is another one than before");
    assertEquals([error.kind, (work as CopyWork).offset], ["FailedPrecondition", offset]);
  }
});
