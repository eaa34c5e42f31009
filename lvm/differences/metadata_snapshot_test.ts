import { assertEquals, assertRejects } from "@std/assert";
import type { Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import type { LocatedLv } from "../model/report.ts";
import { MetadataSnapshots } from "./metadata_snapshot.ts";

const MiB = 1n << 20n;

/** Uses the metadata snapshot of a pool. @returns what was changed */
async function use(metadataPercent: number | undefined, free: bigint): Promise<string[]> {
  const changes: string[] = [];
  let isHeld = false;
  const run = ({ args }: Command) => {
    if (args[0] === "status") {
      const stdout = `data-pool-tpool: 0 131072 thin-pool 1 9/1024 1/1024 ${isHeld ? 7 : "-"} rw discard_passdown\n`;
      return Promise.resolve({ code: 0, stdout, stderr: "" });
    }
    isHeld = args.includes("reserve_metadata_snap");
    changes.push(args.at(-1)!);
    return Promise.resolve({ code: 0, stdout: "", stderr: "" });
  };
  const changeTags = (_lv: unknown, [option]: readonly string[]) => Promise.resolve(void changes.push(option!));
  const lvm = { exec: { run, idle: () => Promise.resolve() }, changeTags } as unknown as Lvm;
  const thinPool = { metadataSize: 4n * MiB, ...(metadataPercent === undefined ? {} : { metadataPercent }) };
  const pool = { name: "pool", uuid: "u", devicePath: "/dev/mapper/data-pool", tags: [], thinPool };
  const located = { group: { name: "data", free }, lv: pool } as unknown as LocatedLv;
  await new MetadataSnapshots({ lvm, driver: "d" }).use(located, () => Promise.resolve());
  return changes;
}

Deno.test("a metadata snapshot is reserved only where all tables have space twice, or the metadata can be extended", async () => {
  const all = ["--addtag", "reserve_metadata_snap", "release_metadata_snap", "--deltag"];
  assertEquals(await use(45, 0n), all);
  assertEquals(await use(undefined, 0n), all);
  assertEquals(await use(80, 4n * MiB), all);
  const error = await assertRejects(() => use(46, 4n * MiB - 1n), StorageError, "its metadata is 46 % full");
  assertEquals(error.kind, "FailedPrecondition");
});
