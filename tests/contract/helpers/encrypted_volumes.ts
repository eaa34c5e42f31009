/**
 * What the contract tests of encryption have in common.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import type { Output } from "../../../lvm/exec.ts";
import { readMounts } from "../../../lvm/host/mounts.ts";
import { type Harness, mountCapability } from "./host.ts";

/** The parameters of encrypted volumes. */
export const PARAMETERS = { encryption: "luks2" };

/** Runs cryptsetup as an administrator would. @param input what it reads from its standard input */
export async function runCryptsetup(harness: Harness, input: string, args: readonly string[]): Promise<Output> {
  async function* parts() {
    yield new TextEncoder().encode(input);
  }
  return await harness.exec.run({ program: "cryptsetup", args, mutates: true, input: parts() });
}

/** The arguments by which cryptsetup derives keys as the driver has it. */
export const DERIVATION = [
  ...["--pbkdf", "argon2id", "--pbkdf-memory", "65536", "--pbkdf-force-iterations", "4", "--pbkdf-parallel", "1"],
];

/** The arguments by which cryptsetup reads the passphrase from its standard input. */
export const FROM_INPUT = ["--batch-mode", "--key-file", "-"];

/** Runs cryptsetup as {@linkcode runCryptsetup} does, and requires that it succeeds. */
export async function requireCryptsetup(harness: Harness, input: string, args: readonly string[]): Promise<void> {
  const { code, stderr } = await runCryptsetup(harness, input, args);
  assertEquals(code, 0, stderr);
}

/** Reports whether a passphrase opens a LUKS header on any LV, also one that is no volume. */
export async function opensAny(harness: Harness, passphrase: string): Promise<boolean> {
  const options = ["open", "--test-passphrase", "--verbose", "--type", "luks2", ...FROM_INPUT];
  for (const { devicePath, active, thinPool } of await harness.lvs()) {
    if (!active || thinPool !== undefined) continue;
    if ((await runCryptsetup(harness, passphrase, [...options, devicePath])).code === 0) return true;
  }
  return false;
}

/** Unpublishes a volume. @param name that of the target */
export async function unpublish(harness: Harness, volumeId: string, name: string): Promise<void> {
  await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${harness.folder}/${name}` });
}

/** Unstages a volume, and makes sure that nothing is mounted there any more. */
export async function unstage(harness: Harness, volumeId: string): Promise<void> {
  const stagingTargetPath = `${harness.folder}/staging`;
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  assertEquals((await readMounts(harness.exec)).filter(({ target }) => target === stagingTargetPath), []);
}

/** Stages a volume with a filesystem, as a pod that starts does, and unstages it. */
export async function useOnce(harness: Harness, volumeId: string, secrets: Record<string, string>): Promise<void> {
  await harness.stage(volumeId, mountCapability(), { secrets });
  await unstage(harness, volumeId);
}

/** Makes sure that one passphrase opens nothing on any LV, that the other opens one, and that there is no backup. */
export async function assertChanged(harness: Harness, from: string, to: string): Promise<void> {
  assertEquals([await opensAny(harness, from), await opensAny(harness, to)], [false, true]);
  assertEquals((await harness.lvs()).filter(({ name }) => name.startsWith("hdr-")), []);
}

/** Returns what the health of a volume says of it. */
export async function healthReasons({ csi }: Harness, volumeId: string): Promise<string[]> {
  const { volumeHealth } = await csi.node.nodeGetVolumeHealth({ volumeId });
  return volumeHealth!.healthStatuses.map(({ reason }) => reason);
}

/** Adds a key slot, as an administrator would. */
export async function addKey(harness: Harness, device: string, passphrase: string, added: string): Promise<void> {
  const length = (text: string) => `${new TextEncoder().encode(text).length}`;
  const sizes = ["--keyfile-size", length(passphrase), "--new-keyfile-size", length(added)];
  const args = ["luksAddKey", ...DERIVATION, ...FROM_INPUT, ...sizes, device, "-"];
  await requireCryptsetup(harness, passphrase + added, args);
}
