/**
 * Readings that fail while a volume is expanded. kubelet takes NOT_FOUND for a volume that can never be expanded, and
 * FAILED_PRECONDITION for one that cannot be while it is mounted, so neither may be the answer.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { describeCommand } from "../../lvm/exec.ts";
import { blockCapability, type Capability, failureStatus, Harness, mountCapability } from "../contract/helpers/host.ts";
import { failure, FakeMachine } from "../fake/machine/machine.ts";

const GROUPS = ["test-small", "test-large"] as const;

const KINDS: Record<string, { capability: Capability; parameters?: Record<string, string> }> = {
  "a filesystem": { capability: mountCapability() },
  "a block volume": { capability: blockCapability() },
  "an encrypted filesystem": { capability: mountCapability(), parameters: { encryption: "luks2" } },
  "an encrypted block volume": { capability: blockCapability(), parameters: { encryption: "luks2" } },
};

for (const [kind, { capability, parameters = {} }] of Object.entries(KINDS)) {
  Deno.test(`NodeExpandVolume of ${kind} is repeated after a reading command failed`, async () => {
    const machine = new FakeMachine();
    for (const group of GROUPS) machine.addGroup(group, 1n << 30n);
    await using harness = await Harness.start(machine, GROUPS);
    const volumeId = await harness.create({ volumeCapabilities: [capability], parameters });
    const secrets = { passphrase: "a passphrase of some length" };
    await harness.stage(volumeId, capability, { secrets });
    const volumePath = await harness.publish(volumeId, "pod", { volumeCapability: capability, secrets });
    const capacityRange = { requiredBytes: 64n << 20n };
    await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
    machine.hasMountTable = false; // so that reading it is a command, too
    let isBeyond = false;
    for (let failing = 0; !isBeyond; failing++) {
      let [count, failed] = [0, ""];
      machine.fault = (command) => {
        if (command.mutates || count++ !== failing) return undefined;
        failed = describeCommand(command);
        return failure(1, "Failure to communicate with kernel device-mapper driver.");
      };
      const expand = harness.csi.node.nodeExpandVolume({ volumeId, volumePath, capacityRange });
      const { code, details } = await failureStatus(expand);
      isBeyond = failed === "";
      assert(["OK", "INTERNAL", "UNAVAILABLE"].includes(code), `${failed}: ${code} ${details}`);
      if (isBeyond) assertEquals(code, "OK", details);
    }
  });
}
