import { assert, assertEquals } from "@std/assert";
import { createFinders, takeInventory } from "../../lvm/inventory/inventory.ts";
import { Lvm } from "../../lvm/client/client.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import {
  copySnapshotOf,
  hasPoolTag,
  overcommitTagValue,
  parseDeletedTags,
  parseUsedTags,
} from "../../lvm/model/tags.ts";
import { blockCapability, mountCapability } from "../contract/host.ts";
import { inProcessCalls, startDriverServices } from "../crash/orchestrator.ts";
import type { FakeMachine } from "../fake/machine.ts";
import {
  asRecorded,
  machineWith,
  POD_DATA,
  readRecords,
  type RecordedState,
  type UnderstoodVolume,
} from "./recorded.ts";
import { unreadableTags, unusedFormats } from "./tag_format.ts";

const { driver, states } = readRecords<{ driver: string; states: readonly RecordedState[] }>("lvm.json");

/** Returns what the driver finds in a report, in the form of the records. */
function understand(groups: readonly VolumeGroup[]): unknown {
  const inventory = takeInventory(groups, createFinders(driver));
  const lvs = groups.flatMap((group) => group.lvs);
  return asRecorded({
    volumes: inventory.volumes.map(({ id, size, tags, lv, used }) => ({ id, size, lv: lv.uuid, used, tags })),
    snapshots: inventory.snapshots.map(({ snapshot, lv, incomplete, erase }) => ({
      ...{ lv: lv.uuid, erase, incomplete, snapshot },
    })),
    lost: inventory.lost.map(({ id }) => id),
    foreign: inventory.foreign.map(({ id }) => id),
    inconsistencies: inventory.inconsistencies.map(({ kind, subject }) => ({ kind, subject })),
    deleted: inventory.deleted.map(({ lv }) => ({ lv: lv.uuid, tags: parseDeletedTags(driver, lv.tags) })),
    copySnapshots: lvs.flatMap((lv) => {
      const volume = copySnapshotOf(driver, lv.tags);
      return volume === undefined ? [] : [{ lv: lv.uuid, volume }];
    }),
    pools: lvs.flatMap((lv) => {
      const [own, overcommit] = [hasPoolTag(driver, lv.tags), overcommitTagValue(lv.tags)];
      return own || overcommit !== undefined ? [{ lv: lv.uuid, own, overcommit }] : [];
    }),
    used: groups.flatMap(({ tags }) => parseUsedTags(driver, tags)),
  });
}

Deno.test("the tags of version 0.1.0 mean to this version what they meant to that one", async () => {
  assert(states.length > 200, "there are records");
  for (const { name, group, understood } of states) {
    assertEquals(understand(await new Lvm(machineWith([group])).report()), understood, name);
  }
});

Deno.test("the records have tags of every format that version 0.1.0 wrote, and no others", () => {
  const tags = states.flatMap(({ group }) => [...group.tags, ...group.lvs.flatMap((lv) => lv.tags)]);
  assertEquals(unreadableTags(driver, tags), []);
  assertEquals(unusedFormats(driver, tags), []);
});

/** Returns the tags of all LVs and groups of a machine. */
function tagsOf({ groups }: FakeMachine): string[] {
  return groups.flatMap(({ tags, lvs }) => [...tags, ...lvs.flatMap((lv) => [...lv.tags])]);
}

/** Repeats a call while an earlier operation has to end first, as an orchestrator does. */
async function retry<T>(idle: () => Promise<void>, call: () => Promise<T>): Promise<T> {
  for (let attempt = 1;; attempt++) {
    try {
      return await call();
    } catch (error) {
      if (attempt === 5) throw error;
      await idle();
    }
  }
}

/** Continues with this version what version 0.1.0 had begun, uses all volumes, and deletes all. */
async function continueState({ group, understood }: RecordedState, folder: string): Promise<FakeMachine> {
  const machine = machineWith([group]);
  const written = new Set<string>();
  const exec = {
    run: async (command: Parameters<FakeMachine["run"]>[0]) => {
      const output = await machine.run(command);
      for (const tag of tagsOf(machine)) written.add(tag);
      return output;
    },
    idle: () => machine.idle(),
  };
  const services = startDriverServices(exec, folder);
  const idle = () => services.background.idle();
  const { controller, node } = inProcessCalls(services);
  try {
    await idle();
    const leftDeleted = machine.allLvs().filter(({ lv }) =>
      [...lv.tags].some((tag) => /^denolith\.deleted=/.test(tag))
    );
    assertEquals(leftDeleted.map(({ lv }) => lv.name), [], "deletions do not continue");
    for (const volume of understood.volumes) await useVolume(machine, volume);
    const { entries } = await controller.listSnapshots({});
    for (const { snapshot } of entries) {
      await retry(idle, () => controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId }));
    }
    const ids = [...understood.volumes.map(({ id }) => id), ...understood.lost];
    for (const volumeId of ids) await retry(idle, () => controller.deleteVolume({ volumeId }));
    await idle();
  } finally {
    await services.background.stop();
  }
  assertEquals(unreadableTags(driver, written), [], "tags that version 0.1.0 cannot read");
  return machine;

  async function useVolume(machine: FakeMachine, { id, tags: { format, copied } }: UnderstoodVolume): Promise<void> {
    const lv = machine.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${id}`))?.lv;
    // a restarted driver drops such an incomplete copy, and a repeated request creates it again
    const mayBeDropped = copied === "all" || (copied !== undefined && format.state === "formatting");
    if (lv === undefined) return assert(mayBeDropped, `${id} is gone`);
    const hadData = lv.content.data.has(POD_DATA);
    const volumeCapability = format.state === "raw" ? blockCapability() : mountCapability(format.type);
    const staged = { volumeId: id, stagingTargetPath: `${folder}/staging` };
    await retry(idle, () => node.nodeStageVolume({ ...staged, volumeCapability }));
    if (format.uuid !== undefined && lv.tags.has(`denolith.fs=formatted:${format.type}:${format.uuid}`)) {
      assertEquals(lv.content.signatures.map(({ uuid }) => uuid), [format.uuid], `${id} has another filesystem`);
    }
    assertEquals(lv.content.data.has(POD_DATA), hadData, `the data of ${id}`);
    await node.nodeUnstageVolume(staged);
  }
}

Deno.test("this version continues what version 0.1.0 began, and writes no tag that it cannot read", async () => {
  const folder = await Deno.realPath(await Deno.makeTempDir());
  const failures: string[] = [];
  for (const state of states) {
    try {
      const machine = await continueState(state, folder);
      const lvs = machine.allLvs().filter(({ lv }) => lv.thinPool === undefined);
      assertEquals(lvs.map(({ lv }) => `${lv.name} ${[...lv.tags]}`), [], "LVs are left");
      assertEquals([...machine.groups[0]!.tags], [], "records are left");
    } catch (error) {
      failures.push(`${state.name}: ${error}`);
    }
  }
  await Deno.remove(folder, { recursive: true });
  assertEquals(failures, []);
});
