/**
 * Contract: changes of the passphrase of an encrypted volume that were interrupted.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { parseHeaderKeys } from "../../lvm/encryption/volume_key.ts";
import { readSignatures } from "../../lvm/host/device.ts";
import {
  addKey,
  assertChanged,
  DERIVATION,
  FROM_INPUT,
  healthReasons,
  opensAny,
  PARAMETERS,
  requireCryptsetup,
  runCryptsetup,
  unpublish,
  unstage,
  useOnce,
} from "./helpers/encrypted_volumes.ts";
import { assertFails, contractTest, type Harness, type Host, mountCapability } from "./helpers/host.ts";

const MiB = 1n << 20n;

/** Passphrases that nothing else contains. */
const OLD = "old garden gate 4be2";
const NEW = "new garden gate 70af";
const OTHER = "another garden gate d519";

/** Registers the tests. */
export function interruptedPassphraseContract(host: Host): void {
  contractTest(
    host,
    "a new passphrase that is taken back after an interruption leaves the volume its own",
    async (harness) => {
      const volumeId = await usedVolume(harness);
      const use = (secrets: Record<string, string>) => useOnce(harness, volumeId, secrets);
      const { devicePath } = await harness.singleLv();
      await backUp(harness, volumeId); // the new passphrase has no key slot yet
      await use({ passphrase: OLD });
      await use({ passphrase: OLD });
      await backUp(harness, volumeId);
      await use({ passphrase: OLD, previousPassphrase: NEW });
      await use({ passphrase: OLD });
      await backUp(harness, volumeId);
      await addKey(harness, devicePath, OLD, NEW);
      await use({ passphrase: OLD });
      await assertChanged(harness, NEW, OLD);
      await use({ passphrase: OLD, previousPassphrase: NEW });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a third passphrase after an interruption lets neither of the two before open anything",
    async (harness) => {
      for (const previousPassphrase of [NEW, OLD]) {
        const { volumeId } = await interruptedVolume(harness);
        await useOnce(harness, volumeId, { passphrase: OTHER, previousPassphrase });
        await assertChanged(harness, OLD, OTHER);
        await assertChanged(harness, NEW, OTHER);
        await harness.csi.controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle();
      }
    },
  );

  contractTest(
    host,
    "an interrupted change is completed by the new passphrase alone, a lost header is written back, and a deletion erases the backup",
    async (harness) => {
      const volumeId = await usedVolume(harness);
      const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
      const { devicePath } = await harness.singleLv();
      await backUp(harness, volumeId);
      assertEquals(await healthReasons(harness, volumeId), ["KeyChangeInterrupted"]);
      await assertFails("UNAUTHENTICATED", stage({ passphrase: NEW }), "interrupted");
      await addKey(harness, devicePath, OLD, NEW);
      await stage({ passphrase: NEW });
      await assertChanged(harness, OLD, NEW);
      await unstage(harness, volumeId);

      await backUp(harness, volumeId);
      await harness.runAsAdmin("wipefs", "--all", devicePath);
      assertEquals(await readSignatures(harness.exec, devicePath), []);
      await stage({ passphrase: OTHER, previousPassphrase: NEW });
      await assertChanged(harness, NEW, OTHER);
      await unstage(harness, volumeId);

      await backUp(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
      const commands = await harness.exec.recordCommands(() => harness.waitUntilIdle());
      assertEquals(await harness.lvs(), [], commands.join("\n"));
    },
  );

  contractTest(
    host,
    "a header whose passphrases were replaced by hand is not replaced by its backup, and opens by its own one",
    async (harness) => {
      const { volumeId, devicePath } = await interruptedVolume(harness);
      await addKey(harness, devicePath, OLD, OTHER);
      for (const slot of ["0", "1"]) {
        await requireCryptsetup(harness, OTHER, ["luksKillSlot", ...FROM_INPUT, devicePath, slot]);
      }
      const stage = harness.stage(volumeId, mountCapability(), { secrets: { passphrase: OLD } });
      await assertFails("FAILED_PRECONDITION", stage, "destroyed or replaced since");
      await useOnce(harness, volumeId, { passphrase: OTHER });
      await assertChanged(harness, OLD, OTHER);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "an interrupted change of a passphrase with two key slots is completed by the new one alone, and other slots stay",
    async (harness) => {
      const volumeId = await usedVolume(harness);
      const { devicePath } = await harness.singleLv();
      await addKey(harness, devicePath, OLD, OTHER);
      await addKey(harness, devicePath, OLD, OLD);
      await backUp(harness, volumeId, "0.2");
      await addKey(harness, devicePath, OLD, NEW);
      await useOnce(harness, volumeId, { passphrase: NEW });
      await assertChanged(harness, OLD, NEW);
      assert(await opensAny(harness, OTHER));
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a volume in use has an interrupted change completed when it is published with the name of its volume key",
    async (harness) => {
      const capability = mountCapability();
      const volumeId = await usedVolume(harness, { passphrase: OLD, volumeKey: "k" });
      const { devicePath } = await harness.singleLv();
      await harness.stage(volumeId, capability, { secrets: { passphrase: OLD, volumeKey: "k" } });
      await backUp(harness, volumeId);
      await addKey(harness, devicePath, OLD, NEW);
      const publish = (secrets: Record<string, string>) =>
        harness.publish(volumeId, "pod", { volumeCapability: capability, secrets });
      await publish({ passphrase: OTHER, volumeKey: "k" });
      assertEquals(await healthReasons(harness, volumeId), ["KeyChangeFailed"]);
      await publish({ passphrase: NEW, volumeKey: "k" });
      await assertChanged(harness, OLD, NEW);
      assertEquals(await healthReasons(harness, volumeId), []);
      const again = await harness.exec.recordCommands(() => publish({ passphrase: NEW, volumeKey: "k" }));
      assertEquals(again.filter((command) => command.startsWith("cryptsetup")), []);
      await publish({ passphrase: OTHER, volumeKey: "k" });
      assertEquals(await healthReasons(harness, volumeId), ["KeyChangeFailed"]);
      await unpublish(harness, volumeId, "pod");
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a header whose data has another volume key since is not replaced by its backup, and its own passphrase opens it",
    async (harness) => {
      const { volumeId, devicePath } = await interruptedVolume(harness);
      await reencrypt(harness, devicePath, "--init-only");
      await reencrypt(harness, devicePath, "--resume-only");
      const stage = harness.stage(volumeId, mountCapability(), { secrets: { passphrase: OLD } });
      await assertFails("FAILED_PRECONDITION", stage, "another volume key since");
      await useOnce(harness, volumeId, { passphrase: NEW });
      await assertChanged(harness, OLD, NEW);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a volume whose change and encryption by another volume key were both interrupted has both completed when it is staged",
    async (harness) => {
      const { volumeId, devicePath } = await interruptedVolume(harness);
      await reencrypt(harness, devicePath, "--init-only");
      await useOnce(harness, volumeId, { passphrase: NEW, previousPassphrase: OLD });
      await assertChanged(harness, OLD, NEW);
      const { stdout } = await runCryptsetup(harness, "", ["luksDump", devicePath]);
      assertEquals(parseHeaderKeys(stdout).isReencrypting, false);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );
}

/** Creates a volume, and uses it once. */
async function usedVolume(harness: Harness, secrets: Record<string, string> = { passphrase: OLD }): Promise<string> {
  const [volumeGroup] = harness.groups;
  const volumeId = await harness.create({ parameters: { ...PARAMETERS, volumeGroup } });
  await useOnce(harness, volumeId, secrets);
  return volumeId;
}

/** Leaves what a crash leaves before the key slot of the old passphrase is destroyed. */
async function interruptedVolume(harness: Harness): Promise<{ volumeId: string; devicePath: string }> {
  const volumeId = await usedVolume(harness);
  const { devicePath } = await harness.singleLv();
  await backUp(harness, volumeId);
  await addKey(harness, devicePath, OLD, NEW);
  return { volumeId, devicePath };
}

/** Encrypts data by another volume key, as an administrator would who has the new passphrase in the key slot 1. */
async function reencrypt(harness: Harness, devicePath: string, step: "--init-only" | "--resume-only"): Promise<void> {
  const begin = step === "--init-only" ? ["--key-slot", "1", ...DERIVATION] : [];
  await requireCryptsetup(harness, NEW, ["reencrypt", step, ...begin, ...FROM_INPUT, devicePath]);
}

/**
 * Makes a backup of the header of a volume, as an interrupted change leaves it.
 *
 * @param previous the key slots of the previous passphrase
 */
async function backUp(harness: Harness, volumeId: string, previous = "0"): Promise<void> {
  const [volumeGroup] = harness.groups;
  const { devicePath, tags } = await harness.singleLv();
  const owner = tags.find((tag) => /^denolith=/.test(tag))!;
  const name = `hdr-${volumeId.slice("v1-".length)}`;
  const { salt, slots } = parseHeaderKeys((await runCryptsetup(harness, "", ["luksDump", devicePath])).stdout);
  const all = Array.from(slots, ([slot, salt]) => `${slot}=${salt}`).join(".");
  const header = `denolith.header=${volumeId}:${previous}:${all}:${salt}`;
  const addTags = [owner, header, "denolith.luks"].flatMap((tag) => ["--addtag", tag]);
  const options = ["--yes", "--zero", "y", "--wipesignatures", "y", "--size", `${16n * MiB}b`, "--name", name];
  await harness.runAsAdmin("lvm", "lvcreate", ...options, ...addTags, volumeGroup);
  const backup = (await harness.lvs()).find((lv) => lv.name === name)!;
  const blocks = ["bs=1048576", "skip=0", "seek=0", "count=16", "iflag=direct,fullblock", "oflag=direct"];
  await harness.runAsAdmin(
    "dd",
    `if=${devicePath}`,
    `of=${backup.devicePath}`,
    ...blocks,
    "conv=fsync,nocreat,notrunc",
    "status=none",
  );
}
