/**
 * Commands that fail after they have done what they do, as ones that are killed. After an error that is final, kubelet neither
 * unpublishes nor unstages the volume, so nothing may be left that keeps it from being deleted.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import type { Command, Output } from "../../lvm/exec.ts";
import { blockCapability, type Capability, failureStatus, Harness, mountCapability } from "../contract/helpers/host.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { drawer } from "../rig/sample.ts";

const GROUPS = ["test-small", "test-large"] as const;

/** Codes after which kubelet does not know whether the call succeeded, and undoes it (volumetypes.IsOperationFinishedError). */
const UNCERTAIN = ["CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED"];

/** Draws the commands that fail: one in four in `task test`; all do in `task test:crashes`. */
const isDrawn = await drawer(4);

const KINDS: Record<string, { capability: Capability; parameters?: Record<string, string>; flags?: string[] }> = {
  "an ext4": { capability: mountCapability("ext4") },
  "an xfs": { capability: mountCapability("xfs") },
  "a btrfs": { capability: mountCapability("btrfs") },
  "a mount with an SELinux context": { capability: mountCapability("ext4", ["context=u:r:t:s0"]) },
  "a block volume": { capability: blockCapability() },
  "an encrypted volume": { capability: mountCapability("ext4"), parameters: { encryption: "luks2" } },
};

/**
 * Stages and publishes a volume, ends its pod, and deletes it, as kubelet and the controller do: a call is undone unless it has
 * failed for good.
 *
 * @returns the codes of the calls that failed, and how the deletion ended
 */
async function live(harness: Harness, volumeId: string, capability: Capability) {
  const { node, controller } = harness.csi;
  const secrets = { passphrase: "a passphrase of some length" };
  const staged = await failureStatus(harness.stage(volumeId, capability, { secrets }));
  const publish = () => harness.publish(volumeId, "pod", { volumeCapability: capability, readonly: true, secrets });
  const published = staged.code === "OK" ? await failureStatus(publish()) : undefined;
  const isUndone = (code: string | undefined) => code === "OK" || UNCERTAIN.some((uncertain) => uncertain === code);
  const end = async () => {
    const targetPath = `${harness.folder}/pod`;
    if (isUndone(published?.code)) await node.nodeUnpublishVolume({ volumeId, targetPath });
    const stagingTargetPath = `${harness.folder}/staging`;
    if (isUndone(staged.code)) await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    await controller.deleteVolume({ volumeId });
  };
  const first = await failureStatus(end()); // these calls are repeated until they succeed
  return {
    codes: [staged.code, published?.code].filter((code) => code !== "OK"),
    deletion: first.code === "OK" ? first : await failureStatus(end()),
  };
}

for (const [kind, { capability, parameters = {} }] of Object.entries(KINDS)) {
  Deno.test(`${kind} can be deleted after any command of its first use, or of a later one, failed late`, async () => {
    const machine = new FakeMachine();
    machine.host.seLinux = true;
    for (const group of GROUPS) machine.addGroup(group, 4n << 30n);
    await using harness = await Harness.start(machine, GROUPS);
    const create = () =>
      harness.create({
        name: crypto.randomUUID(),
        volumeCapabilities: [capability],
        capacityRange: { requiredBytes: 320n << 20n },
        parameters,
      });
    for (const isLater of [false, true]) {
      let commands = Infinity;
      for (let failing = -1; failing < commands; failing++) {
        // the first round counts the commands, of which none fails
        if (failing >= 0 && !isDrawn(`${kind} ${isLater} ${failing}`)) continue;
        const volumeId = await create();
        if (isLater) {
          const secrets = { passphrase: "a passphrase of some length" };
          await harness.stage(volumeId, capability, { secrets });
          await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
        }
        let count = 0;
        let failed = "";
        machine.fault = async (command: Command): Promise<Output | undefined> => {
          if (!command.mutates || count++ !== failing) return undefined;
          machine.fault = undefined;
          failed = [command.program, ...command.args].join(" ");
          await machine.run(command);
          return { code: 137, stdout: "", stderr: "" };
        };
        const { codes, deletion } = await live(harness, volumeId, capability);
        if (failing < 0) commands = count;
        machine.fault = undefined;
        assertEquals(deletion, { code: "OK", details: "" }, `${failed} failed, ${codes}`);
        await harness.waitUntilIdle();
      }
    }
  });
}
