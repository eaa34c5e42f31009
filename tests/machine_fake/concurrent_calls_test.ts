/**
 * Calls for one volume or snapshot while another call for it is running.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { withinDeadline } from "../../base/clock.ts";
import type { Command } from "../../lvm/exec.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { contentSourceOf } from "../contract/copies_suite.ts";
import {
  blockCapability,
  type CreateRequest,
  failureStatus,
  Harness,
  mountCapability,
} from "../contract/helpers/host.ts";

const GROUPS = ["test-small", "test-large"] as const;

const MiB = 1n << 20n;

/** A driver with a staged and published volume, a snapshot of another volume, and a gate for one of its commands. */
class CallFixture implements AsyncDisposable {
  readonly machine = new FakeMachine();
  readonly #stack = new AsyncDisposableStack();
  #release = () => {};
  harness!: Harness;
  volumeId!: string;
  sourceId!: string;
  snapshotId!: string;

  static async open(): Promise<CallFixture> {
    const fixture = new CallFixture();
    fixture.machine.addGroup(GROUPS[0], 1n << 30n);
    fixture.machine.addGroup(GROUPS[1], 2n << 30n);
    const harness = fixture.harness = fixture.#stack.use(await Harness.start(fixture.machine, GROUPS));
    fixture.volumeId = await harness.create({ name: "used" });
    await harness.stage(fixture.volumeId);
    await harness.publish(fixture.volumeId);
    fixture.sourceId = await harness.create({ name: "source", volumeCapabilities: [blockCapability()] });
    const request = { name: "cut", sourceVolumeId: fixture.sourceId };
    fixture.snapshotId = (await harness.csi.controller.createSnapshot(request)).snapshot!.snapshotId;
    return fixture;
  }

  /** Returns the calls, by what they do. */
  get calls(): Readonly<Record<string, () => Promise<unknown>>> {
    const { volumeId, sourceId, snapshotId, harness } = this;
    const { csi: { controller, node }, folder } = harness;
    const capacityRange = { requiredBytes: 64n * MiB };
    const copyRequest: CreateRequest = { volumeCapabilities: [blockCapability()] };
    return {
      stage: () => harness.stage(volumeId),
      unstage: () => node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${folder}/staging` }),
      publish: () => harness.publish(volumeId, "other"),
      unpublish: () => node.nodeUnpublishVolume({ volumeId, targetPath: `${folder}/pod` }),
      expandOnNode: () => node.nodeExpandVolume({ volumeId, volumePath: `${folder}/pod`, capacityRange: undefined }),
      expand: () => controller.controllerExpandVolume({ volumeId, capacityRange }),
      delete: () => controller.deleteVolume({ volumeId }),
      modify: () => controller.controllerModifyVolume({ volumeId, mutableParameters: { readIops: "100" } }),
      create: () => harness.create({ name: "used" }),
      restore: () => harness.create({ ...copyRequest, name: "restored", ...contentSourceOf({ snapshotId }) }),
      deleteSnapshot: () => controller.deleteSnapshot({ snapshotId }),
      clone: () => harness.create({ ...copyRequest, name: "clone", ...contentSourceOf({ volumeId: sourceId }) }),
      takeSnapshot: () => controller.createSnapshot({ name: "another", sourceVolumeId: sourceId }),
      deleteSource: () => controller.deleteVolume({ volumeId: sourceId }),
      expandSource: () => controller.controllerExpandVolume({ volumeId: sourceId, capacityRange }),
    };
  }

  /**
   * Starts a call, and stops it before the first command, or before the first of some commands.
   *
   * @returns a function that lets it continue and end
   */
  async start(
    call: () => Promise<unknown>,
    isHeld: (command: Command) => boolean = () => true,
  ): Promise<() => Promise<void>> {
    const [started, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    this.machine.fault = async (command) => {
      if (!isHeld(command)) return undefined;
      this.machine.fault = undefined;
      started.resolve();
      await gate.promise;
      return undefined;
    };
    this.#release = gate.resolve;
    const result = call();
    result.catch(() => {}); // a test that fails does not wait for it
    await started.promise;
    return async () => {
      gate.resolve();
      await result;
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#release();
    await this.#stack.disposeAsync();
  }
}

const OF_ONE_VOLUME = [
  "stage",
  "unstage",
  "publish",
  "unpublish",
  "expandOnNode",
  "expand",
  "delete",
  "modify",
] as const;

/** Calls that hold something, and the calls that are refused meanwhile. */
const EXCLUSIVE: readonly (readonly [string, readonly string[]])[] = [
  ...(["publish", "unpublish", "expandOnNode", "stage", "expand", "modify", "create"] as const).map((held) =>
    [held, [...OF_ONE_VOLUME, "create"]] as const
  ),
  ["restore", ["restore", "deleteSnapshot"]],
  ["clone", ["clone", "deleteSource", "expandSource"]],
  ["takeSnapshot", ["takeSnapshot", "deleteSource", "expandSource"]],
  ["expandSource", ["clone", "takeSnapshot", "deleteSource"]],
  ["deleteSnapshot", ["restore"]],
];

Deno.test.each(EXCLUSIVE)("during the call %s, others that touch the same are ABORTED: %j", async (held, refused) => {
  await using fixture = await CallFixture.open();
  const finish = await fixture.start(fixture.calls[held]!);
  for (const name of refused) {
    const outcome = await withinDeadline(failureStatus(fixture.calls[name]!()), 3_000); // else it waits for the held one
    assertEquals([name, outcome?.code], [name, "ABORTED"]);
    assertStringIncludes(outcome!.details, "is running; try again");
  }
  await finish();
});

Deno.test("copies and snapshots of one source are created at the same time", async () => {
  await using fixture = await CallFixture.open();
  const { clone, takeSnapshot } = fixture.calls;
  const finish = await fixture.start(clone!, ({ args }) => args[0] === "lvcreate"); // a report would stop both
  await takeSnapshot!();
  await finish();
  assertEquals((await fixture.harness.csi.controller.listSnapshots({})).entries.length, 2);
});

Deno.test("a volume is used while it is copied, and not expanded or deleted", async () => {
  await using fixture = await CallFixture.open();
  const { harness, sourceId, calls } = fixture;
  const finish = await fixture.start(calls["clone"]!, ({ program }) => program === "dd");
  await harness.stage(sourceId, blockCapability());
  await harness.publish(sourceId, "reader", { volumeCapability: blockCapability() });
  for (const name of ["expandSource", "deleteSource"]) {
    const { code, details } = await failureStatus(calls[name]!());
    assertEquals([name, code], [name, "ABORTED"]);
    assertStringIncludes(details, "is being created from it");
  }
  await finish();
});

Deno.test("a thin volume is created while another group's lvcreate for its pool does not end", async () => {
  await using fixture = await CallFixture.open();
  const { harness } = fixture;
  const thinIn = (volumeGroup: string) => ({ parameters: { volumeGroup, thinProvision: "yes" } });
  const finish = await fixture.start(
    () => harness.create(thinIn(GROUPS[0])),
    ({ args }) => args[0] === "lvcreate",
  );
  assert(await withinDeadline(harness.create(thinIn(GROUPS[1])), 3_000) !== undefined, "it waits for the other group");
  await finish();
});

Deno.test("a volume for readers only is published read-only, though the call does not say so", async () => {
  await using fixture = await CallFixture.open();
  const { harness, machine, volumeId } = fixture;
  await fixture.calls["unpublish"]!();
  const volumeCapability = mountCapability("", [], 2); // SINGLE_NODE_READER_ONLY
  const target = await harness.publish(volumeId, "reader", { volumeCapability, readonly: false });
  assertEquals(machine.mounts.find((mount) => mount.target === target)?.readOnly, true);
});
