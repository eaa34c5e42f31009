/**
 * Disks that become physical volumes, over the fake machine and over real LVM: the agent's own code, with an API server that is
 * simulated.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import type { Exec } from "../../lvm/exec.ts";
import { readSignatures } from "../../lvm/host/device.ts";
import { readSurvey } from "../../lvm/model/survey.ts";
import { DiskNode, type Interceptor } from "../fake/cluster/disk_node.ts";

/** A machine with two disks that nobody uses. */
export interface DiskHost {
  /** For names of tests. */
  readonly name: string;
  /** The names of the disks in /dev/disk/by-id. */
  readonly disks: readonly [string, string];
  /** Runs commands. */
  readonly exec: Exec;
  /** An empty data directory of kubelet. */
  readonly kubeletDirectory: string;
  /** Makes an ext4 on a disk, as another program does. */
  makeFilesystem(disk: string): Promise<void>;
  /** Opens a disk exclusively, as a program does that mounts it. @returns what closes it */
  openExclusively(disk: string): Promise<AsyncDisposable>;
  /** Makes the disks blank again, and removes the groups. */
  reset(): Promise<void>;
}

const GROUP = "taken";

/** Registers the tests. */
export function registerDiskTests(host: DiskHost): void {
  const { exec, disks: [first, second], kubeletDirectory } = host;
  const rules = [{ group: GROUP, names: { matches: (name: string) => host.disks.includes(name) } }];
  const test = (
    name: string,
    body: (s: DiskNode, agent: (intercept?: Interceptor) => () => Promise<void>) => Promise<void>,
  ) =>
    Deno.test(`${name} [${host.name}]`, async () => {
      await host.reset();
      const s = new DiskNode();
      const agent = (intercept?: Interceptor) => s.agent(intercept, { machine: exec, rules, kubeletDirectory });
      await agent()();
      assertEquals(s.node.status?.disks?.map(({ name, proposed, reason }) => [name, proposed, reason]), [
        [first, true, undefined],
        [second, true, undefined],
      ]);
      await body(s, agent);
    });
  const groupPvs = async () =>
    (await readSurvey(exec)).groups.filter(({ name }) => name === GROUP).flatMap(({ pvs }) =>
      pvs.map(({ uuid }) => uuid)
    )
      .sort();
  const unassigned = async () => (await readSurvey(exec)).unassignedPvs.map(({ uuid }) => uuid);
  const signatures = async (disk: string) =>
    (await readSignatures(exec, `/dev/disk/by-id/${disk}`)).map(({ type }) => type);

  test("an accepted disk becomes a volume group, and the next one is added to it", async (s, agent) => {
    s.accept(first);
    await agent()();
    assertEquals([s.outcome(first)?.state, s.outcome(first)?.message], ["Taken", undefined]);
    assertEquals(await groupPvs(), [s.outcome(first)!.physicalVolumeUUID]);
    await agent()();
    s.accept(second);
    await agent()();
    const uuids = [first, second].map((name) => s.outcome(name)!.physicalVolumeUUID).sort();
    assertEquals([await groupPvs(), await unassigned()], [uuids as string[], []]);
    const run = agent();
    await run();
    await run();
    assertEquals(s.condition("DisksRefused")?.status, "False");
    assertEquals(s.node.status?.disks?.map(({ proposed, reason }) => [proposed, reason]), [
      [false, "it has a signature (LVM2_member)"],
      [false, "it has a signature (LVM2_member)"],
    ]);
  });

  test("nothing is written to a disk that gets a filesystem after it was accepted", async (s, agent) => {
    s.accept(first);
    await host.makeFilesystem(first);
    await agent()();
    assertEquals([s.outcome(first)?.state, await groupPvs(), await unassigned()], ["Refused", [], []]);
    assertEquals(await signatures(first), ["ext4"]);
    assertMatch(s.events.at(-1)!, /^Warning DiskRefused .*: it has a signature \(ext4\)/);
  });

  test("nothing is written to a disk that gets a filesystem right before pvcreate", async (s, agent) => {
    s.accept(first);
    await agent(async (what, when) => {
      if (what === "lvm pvcreate" && when === "before") await host.makeFilesystem(first);
    })();
    assertEquals([await groupPvs(), await unassigned(), await signatures(first)], [[], [], ["ext4"]]);
    assertMatch(s.events.at(-1)!, /^Warning DiskRefused .*pvcreate .*exit 5/);
    await agent()();
    assertEquals(s.outcome(first)?.state, "Refused");
  });

  test("nothing is written to a disk that a program has open exclusively right before pvcreate", async (s, agent) => {
    s.accept(first);
    let held: AsyncDisposable | undefined;
    await agent(async (what, when) => {
      if (what === "lvm pvcreate" && when === "before") held ??= await host.openExclusively(first);
    })();
    await held?.[Symbol.asyncDispose]();
    assertEquals([await groupPvs(), await unassigned(), await signatures(first)], [[], [], []]);
    assertMatch(s.events.at(-1)!, /^Warning DiskRefused .*pvcreate .*exclusively/);
    await agent()();
    assertEquals([s.outcome(first)?.state, (await groupPvs()).length], ["Taken", 1], "when it is closed");
  });

  test(
    "an agent that dies after pvcreate continues, and undoes it when the acceptance is withdrawn",
    async (s, agent) => {
      for (const isWithdrawn of [true, false]) {
        s.accept(first);
        let isDead = false;
        await agent((what, when) => {
          isDead ||= what === "lvm pvcreate" && when === "after";
          if (isDead) throw new Error("the agent is dead");
        })().catch(() => {});
        assertEquals([await unassigned(), await groupPvs()], [[s.outcome(first)!.physicalVolumeUUID!], []]);
        if (isWithdrawn) s.node.spec.acceptedDisks = [];
        await agent()();
        assertEquals(await unassigned(), []);
        assertEquals(await groupPvs(), isWithdrawn ? [] : [s.outcome(first)!.physicalVolumeUUID!]);
        if (isWithdrawn) assertEquals([await signatures(first), s.outcome(first)], [[], undefined]);
      }
    },
  );

  test("a disk that was taken out of its group is not taken back", async (s, agent) => {
    s.accept(first);
    await agent()();
    await host.reset();
    await agent()();
    assertEquals([await groupPvs(), await unassigned(), s.outcome(first)?.state], [[], [], "Taken"]);
    assertMatch(s.outcome(first)!.message!, /^its physical volume is not on it any more/);
  });
}
