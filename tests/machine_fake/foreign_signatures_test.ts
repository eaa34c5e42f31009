/**
 * Volumes beside each signature that libblkid knows outside of an ext4's own superblock, as the wipefs of this machine finds it.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { HostExec } from "../../lvm/exec.ts";
import { assertFails, Harness } from "../contract/helpers/host.ts";
import { FOREIGN_SIGNATURES, type ForeignSignature } from "../fake/machine/foreign_signatures.ts";
import { FakeMachine, ok } from "../fake/machine/machine.ts";
import { sampleCases } from "../rig/sample.ts";

const exec = new HostExec();
const GROUPS = ["test-small", "test-large"] as const;
const BYTES = 32 << 20;

/** Reports whether this machine has util-linux 2.38 or later, and e2fsprogs. */
async function hasTools(): Promise<boolean> {
  try {
    const { stdout } = await exec.run({ program: "wipefs", args: ["--version"], mutates: false });
    const [, major, minor] = /(\d+)\.(\d+)/.exec(stdout) ?? [];
    await exec.run({ program: "mke2fs", args: ["-V"], mutates: false });
    return Number(major) > 2 || Number(minor) >= 38;
  } catch {
    return false;
  }
}

/** Writes a signature to a file of the size of a device. */
async function writeSignature(path: string, { offset, bytes }: ForeignSignature): Promise<void> {
  using file = await Deno.open(path, { create: true, write: true });
  await file.truncate(BYTES);
  await file.seek(offset < 0 ? BYTES + offset : offset, Deno.SeekMode.Start);
  await file.write(bytes);
}

const ignore = !await hasTools();

Deno.test({
  name:
    "each foreign signature keeps a device from being formatted, and no filesystem from being mounted (wipefs 2.38, mke2fs)",
  ignore,
  fn: async (t) => {
    for (const signature of await sampleCases("foreign signatures", FOREIGN_SIGNATURES, 4)) {
      await t.step(`${signature.type} at ${signature.offset}`, async () => {
        const machine = new FakeMachine();
        for (const group of GROUPS) machine.addGroup(group, 1n << 30n);
        await using harness = await Harness.start(machine, GROUPS);
        const file = `${harness.folder}/device`;
        const isProbe = (args: readonly string[]) => args[0] === "--no-act";
        const volumeId = await harness.create();
        await writeSignature(file, signature);
        machine.fault = ({ program, args }) =>
          program === "wipefs" && isProbe(args)
            ? exec.run({ program, args: [...args.slice(0, -1), file], mutates: false })
            : undefined;
        const commands = await harness.exec.recordCommands(() =>
          assertFails("FAILED_PRECONDITION", harness.stage(volumeId), `it holds ${signature.type}`)
        );
        assertEquals(commands.filter((command) => /^mk|^wipefs --all|^mount/.test(command)), []);

        machine.fault = undefined;
        const stagingTargetPath = await harness.stage(volumeId);
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
        const [{ lv }] = machine.allLvs() as [ReturnType<FakeMachine["allLvs"]>[number]];
        await Deno.remove(file);
        await Deno.writeFile(file, new Uint8Array());
        await Deno.truncate(file, BYTES);
        const args = ["-q", "-t", "ext4", "-b", "4096", "-U", lv.content.signatures[0]!.uuid, file];
        assertEquals(await exec.run({ program: "mke2fs", args, mutates: true }), ok());
        await writeSignature(file, signature);
        machine.fault = ({ program, args }) =>
          program === "wipefs" ? exec.run({ program, args: [...args.slice(0, -1), file], mutates: false }) : undefined;
        const { stdout } = await exec.run({ program: "wipefs", args: ["--no-act", "--json", file], mutates: false });
        assert(stdout.includes(`"${signature.type}"`) && stdout.includes('"ext4"'), stdout);
        await harness.stage(volumeId);
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      });
    }
  },
});
