import { assertEquals } from "@std/assert";
import type { NamedDisk } from "../../lvm/disks/reading.ts";
import type { AcceptedDiskStatus, LvmNode, NodeDisk } from "../api/lvm_objects.ts";
import { DiskReports } from "./disk_reports.ts";

function disk(name: string, objections: readonly string[] = []): NamedDisk {
  return {
    name,
    ids: [name],
    path: `/dev/${name}`,
    number: "8:0",
    size: 100n << 30n,
    rotational: false,
    group: "data",
    objections,
  };
}

/** Returns what is reported of disks, and the events, after an LVMNode that has others. */
async function update(
  disks: readonly NamedDisk[] | Error,
  before?: NodeDisk[],
  others: string[] = [],
  taken?: AcceptedDiskStatus,
) {
  const recorded: string[] = [];
  const reports = new DiskReports({
    events: { record: (_object, type, reason, message) => void recorded.push(`${type} ${reason} ${message}`) },
    read: () =>
      disks instanceof Error
        ? Promise.reject(disks)
        : Promise.resolve({ disks, names: new Set([...disks.map(({ name }) => name), ...others]) }),
  });
  const node: LvmNode = {
    metadata: { name: "n1" },
    spec: { driverName: "d" },
    status: { ...(before && { disks: before }), ...(taken && { acceptedDisks: [taken] }) },
  };
  return { disks: await reports.update(node), events: recorded };
}

Deno.test("update() reports which disks are proposed, and why others are not", async () => {
  const { disks } = await update([disk("a"), disk("b", ["it is mounted", "it is read-only"])]);
  assertEquals(disks, [
    { name: "a", path: "/dev/a", size: "100Gi", volumeGroup: "data", proposed: true, rotational: false },
    {
      ...{ name: "b", path: "/dev/b", size: "100Gi", volumeGroup: "data", proposed: false, rotational: false },
      reason: "it is mounted; it is read-only",
    },
  ]);
});

Deno.test("update() records an event when a disk comes or goes, and none when only its state or a rule changes", async () => {
  const proposed = "Normal DiskAdded disk a (/dev/a, 100 GiB): nobody uses it, so it is proposed for volume group data";
  const used = disk("b", ["it is mounted"]);
  assertEquals((await update([disk("a"), used])).events, [proposed], "at first, what is in use is no news");
  const { disks: known } = await update([used]);
  assertEquals((await update([disk("a"), used], known)).events, [proposed]);
  assertEquals((await update([disk("b")], known)).events, []);
  assertEquals((await update([used], [])).events, [
    "Normal DiskAdded disk b (/dev/b, 100 GiB): it is not proposed for volume group data: it is mounted",
  ]);
  assertEquals((await update([], known)).events, ["Warning DiskLost disk b (/dev/b) is not there any more"]);
  assertEquals((await update([], known, ["b"])).events, [], "no rule names it any more");
});

Deno.test("update() names the volume group of a disk that was taken, when it is lost and when it is back", async () => {
  const outcome = { name: "a", volumeGroup: "data", volumeGroupUUID: "v", state: "Taken" } as const;
  const { disks: known } = await update([disk("a", ["it has a signature (LVM2_member)"])]);
  assertEquals((await update([], known, [], outcome)).events, [
    "Warning DiskLost disk a (/dev/a), a physical volume of volume group data, is not there any more",
  ]);
  assertEquals((await update([disk("a", ["it has a signature (LVM2_member)"])], [], [], outcome)).events, [
    "Normal DiskAdded disk a (/dev/a, 100 GiB): it is a physical volume of volume group data",
  ]);
});

Deno.test("update() leaves what was reported when the disks cannot be read", async () => {
  assertEquals(await update(new Error("no"), []), { disks: undefined, events: [] });
});
