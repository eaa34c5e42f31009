/**
 * An encrypted volume on a fake machine, whose passphrase changes.
 *
 * @module
 */

import { closeMapping } from "../../../lvm/encryption/mapping.ts";
import { Encryption } from "../../../lvm/encryption/encryption.ts";
import { createHeaderBackup, recordAddedSlot } from "../../../lvm/encryption/header_backup.ts";
import { readHeaderKeys } from "../../../lvm/encryption/header.ts";
import { KeyChanges } from "../../../lvm/encryption/key_changes.ts";
import { Passphrase, type Passphrases } from "../../../lvm/encryption/passphrase.ts";
import { Lvm } from "../../../lvm/client/client.ts";
import { verifyDevice } from "../../../lvm/host/device.ts";
import { readMounts } from "../../../lvm/host/mounts.ts";
import { volumeIdOf, volumeLvName } from "../../../base/ids.ts";
import type { Volume } from "../../../lvm/inventory/volume.ts";
import { VolumeFinder } from "../../../lvm/inventory/volume_finder.ts";
import { FakeMachine } from "./machine.ts";

const [DRIVER, ID] = ["d", volumeIdOf("one")];

/** The secret of a volume: its passphrase, the one that this replaces, and the name of the volume key. */
export type Secret = readonly [passphrase: string, previous?: string | undefined, volumeKey?: string | undefined];

/** An encrypted volume, and the driver that uses it. */
export type PassphraseHarness = Awaited<ReturnType<typeof passphraseHarness>>;

/** Returns the harness of a volume that was used with a secret once. */
export async function passphraseHarness(...first: Secret) {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const tags = [`denolith=${DRIVER}`, `denolith.volume=${ID}`, "denolith.fs=luks2:wanted:raw"];
  const args = ["lvcreate", "--yes", "--zero", "y", "--wipesignatures", "y", "--size", "33554432b"];
  const addTags = tags.flatMap((tag) => ["--addtag", tag]);
  await machine.run({ program: "lvm", args: [...args, "--name", volumeLvName(ID), ...addTags, "data"], mutates: true });
  const errors: unknown[] = [];
  let changes: KeyChanges;
  let encryption: Encryption;
  const find = async () => new VolumeFinder({ driver: DRIVER }).require(await lvm.report(), ID);
  const lv = machine.groups[0]!.lvs[0]!;
  const harness = {
    ...{ machine, lv, errors, find },
    /** Lets another process take over, which knows nothing. */
    restart: () => {
      changes = new KeyChanges();
      encryption = new Encryption(lvm, (error) => errors.push(error), changes);
    },
    luks: () => lv.content.luks!,
    /** The passphrases of the key slots that are left. */
    keys: () => lv.content.luks!.passphrases.filter((each) => each !== undefined),
    backups: () => machine.groups[0]!.lvs.filter(({ name }) => name.startsWith("hdr-")),
    state: async () => changes.stateOf(await find()),
    /** Stages the volume, which is open then. */
    stage: async (...secret: Secret) => await harness.stageVolume(await find(), ...secret),
    /** Stages the volume as a report has it. */
    stageVolume: async (volume: Volume, ...secret: Secret) => {
      return await encryption.open(volume, {
        ...{ device: await verifyDevice(machine, volume.lv), mounts: await readMounts(machine) },
        ...{ ...passphrasesOf(secret), recordUse: () => Promise.resolve() },
      });
    },
    close: async () => await closeMapping(machine, ID, await readMounts(machine)),
    /** Stages the volume, and closes it. */
    use: async (...secret: Secret) => {
      await harness.stage(...secret);
      await harness.close();
    },
    /** Publishes a volume that is staged. A failure is among the errors. */
    publish: (...secret: Secret) => encryption.changePassphrase(ID, passphrasesOf(secret), find),
    /**
     * Leaves what a crash leaves between the adding of a key slot and the end of the change.
     *
     * @param previous the key slots of the former passphrase
     */
    interrupt: async (passphrase: string, previous: readonly number[] = [0]) => {
      const volume = await find();
      const { salt = "", slots: all } = await readHeaderKeys(machine, volume.lv.devicePath);
      const backup = await createHeaderBackup(lvm, volume, { previous, all, salt });
      lv.content.luks!.passphrases.push(passphrase);
      const { slots } = await readHeaderKeys(machine, volume.lv.devicePath);
      await recordAddedSlot(lvm, volume, backup, [...slots].at(-1)!);
    },
    /** Runs a command of cryptsetup on the device of the volume, as an administrator. */
    cryptsetup: async (input: string, ...args: readonly string[]) => {
      const bytes = [new TextEncoder().encode(input)];
      const command = { program: "cryptsetup", args: [...args, (await find()).lv.devicePath], mutates: true } as const;
      const { code, stderr } = await machine.run({ ...command, input: ReadableStream.from(bytes) });
      if (code !== 0) throw new Error(stderr);
    },
  };
  harness.restart();
  await harness.use(...first);
  return harness;
}

/** The arguments by which `cryptsetup reencrypt` begins with the key slot 1, and ends. */
export const REENCRYPTION = [
  "reencrypt --init-only --key-slot 1 --pbkdf argon2id --pbkdf-memory 65536 --pbkdf-force-iterations 4 --pbkdf-parallel 1",
  "reencrypt --resume-only",
].map((text) => [...text.split(" "), "--batch-mode", "--key-file", "-"]);

function passphrasesOf([passphrase, previous, volumeKey]: Secret): Passphrases & { readonly passphrase: Passphrase } {
  return {
    passphrase: new Passphrase(passphrase),
    ...(previous !== undefined && { previous: new Passphrase(previous) }),
    ...(volumeKey !== undefined && { volumeKey }),
  };
}
