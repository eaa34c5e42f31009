import { assertEquals } from "@std/assert";
import { healthyMachine } from "../tests/fake/machine/healthy_machine.ts";
import { openMachine } from "./machine.ts";
import { ANY_GROUP } from "./model/groups.ts";

Deno.test("openMachine() finds volumes and snapshots by their records, where there are some", async () => {
  const { machine, group, id, snapshotId } = healthyMachine();
  group.tags.clear(); // the mark that the volume was used would count more than a record
  const options = {
    exec: machine,
    driver: "lvm.denolith.dev",
    groups: ANY_GROUP,
    mountRoots: ["/staging"],
    scratch: "/",
  };
  const statesWith = async (recorded: { recorded?: NonNullable<Parameters<typeof openMachine>[0]["recorded"]> }) => {
    const { lvm, volumeFinder, snapshotFinder, background } = openMachine({ ...options, ...recorded });
    const groups = await lvm.report();
    await background.stop();
    return [
      volumeFinder.locate(groups, id).state,
      snapshotFinder.stateOf(groups, { id: snapshotId, source: id }).state,
    ];
  };
  const gone = { lvUuid: "gone", groupName: "data" };
  assertEquals(await statesWith({}), ["present", "present"]);
  assertEquals(await statesWith({ recorded: { volume: () => gone, snapshot: () => undefined } }), ["lost", "present"]);
  assertEquals(await statesWith({ recorded: { volume: () => undefined, snapshot: () => gone } }), ["present", "lost"]);
});
