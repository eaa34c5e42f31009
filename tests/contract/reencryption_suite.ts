/**
 * Contract: another volume key for an encrypted volume.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { volumeIdOf } from "../../base/ids.ts";
import { type HeaderKeys, parseHeaderKeys } from "../../lvm/encryption/volume_key.ts";
import { createCopy } from "./copies_suite.ts";
import {
  DERIVATION,
  FROM_INPUT,
  opensAny,
  PARAMETERS,
  requireCryptsetup,
  runCryptsetup,
  unpublish,
  unstage,
} from "./helpers/encrypted_volumes.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
  totalBytes,
} from "./helpers/host.ts";

const MiB = 1n << 20n;

/** Passphrases that nothing else contains. */
const OLD = "old paper clip 61f0";
const NEW = "new paper clip 8c2d";

/** Registers the tests. */
export function reencryptionContract(host: Host): void {
  contractTest(
    host,
    "a volume gets another volume key when it is staged with another name for it, and keeps its data",
    async (harness) => {
      const volumeId = await harness.create({ parameters: PARAMETERS });
      const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
      for (const volumeKey of ["", "a b", "x".repeat(33), "a+00000000", "ü", "-;reboot"]) {
        await assertFails("INVALID_ARGUMENT", stage({ passphrase: OLD, volumeKey }), "volumeKey");
      }
      await stage({ passphrase: OLD });
      if (!host.name.startsWith("fake")) await writeFile(harness);
      await unstage(harness, volumeId);
      const first = await headerKeys(harness);
      assertEquals([first.name, first.isReencrypting], [undefined, false]);

      await stage({ passphrase: OLD, volumeKey: "2026-11" });
      const second = await headerKeys(harness);
      assertEquals(second.name, "2026-11");
      assertNotEquals(second.salt, first.salt);
      if (!host.name.startsWith("fake")) assertEquals(await readFile(harness), "data");
      await unstage(harness, volumeId);
      const commands = await harness.exec.recordCommands(() => stage({ passphrase: OLD, volumeKey: "2026-11" }));
      assertEquals(commands.filter((command) => command.includes("reencrypt")), []);
      await unstage(harness, volumeId);

      await stage({ passphrase: NEW, previousPassphrase: OLD, volumeKey: "2026-12" });
      assertEquals([await opensAny(harness, OLD), await opensAny(harness, NEW)], [false, true]);
      const third = await headerKeys(harness);
      assertEquals(third.name, "2026-12");
      assertNotEquals(third.salt, second.salt);
      if (!host.name.startsWith("fake")) assertEquals(await readFile(harness), "data");
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a volume that is first used with a name for its volume key is not encrypted again",
    async (harness) => {
      const volumeId = await harness.create({ parameters: PARAMETERS });
      const secrets = { passphrase: OLD, volumeKey: "first" };
      const commands = await harness.exec.recordCommands(() => harness.stage(volumeId, mountCapability(), { secrets }));
      await unstage(harness, volumeId);
      commands.push(
        ...await harness.exec.recordCommands(() => harness.stage(volumeId, mountCapability(), { secrets })),
      );
      assertEquals(commands.filter((command) => command.includes("reencrypt")), []);
      assertEquals((await headerKeys(harness)).name, "first");
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "a volume in use, a thin one and one with snapshots are not encrypted again", async (harness) => {
    const volumeCapabilities = [blockCapability()];
    const secrets = { passphrase: OLD, volumeKey: "other" };
    const volumeId = await harness.create({ volumeCapabilities, parameters: PARAMETERS });
    const stage = (given: Record<string, string>) => harness.stage(volumeId, blockCapability(), { secrets: given });
    await stage({ passphrase: OLD });
    await harness.publish(volumeId, "device", { volumeCapability: blockCapability() });
    await stage(secrets); // a pod uses it, and its kubelet was restarted
    assertEquals((await headerKeys(harness)).name, undefined);
    await unpublish(harness, volumeId, "device");
    await unstage(harness, volumeId);
    const { snapshot } = await harness.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId });
    await assertFails("FAILED_PRECONDITION", stage(secrets), "snapshots");
    await stage({ passphrase: OLD });
    await unstage(harness, volumeId);
    await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
    await harness.waitUntilIdle();
    await stage(secrets);
    assertEquals((await headerKeys(harness)).name, "other");
    await unstage(harness, volumeId);
    await harness.csi.controller.deleteVolume({ volumeId });
    await harness.waitUntilIdle();

    const thin = await harness.create({ parameters: { ...PARAMETERS, thinProvision: "yes" } });
    await harness.stage(thin, mountCapability(), { secrets: { passphrase: OLD } });
    await unstage(harness, thin);
    await assertFails("FAILED_PRECONDITION", harness.stage(thin, mountCapability(), { secrets }), "thin");
    await harness.csi.controller.deleteVolume({ volumeId: thin });
    await harness.waitUntilIdle();
    for (const { name: group, lvs } of await harness.report()) {
      for (const { name } of lvs) await harness.runAsAdmin("lvm", "lvremove", "--yes", `${group}/${name}`);
    }
  });

  contractTest(
    host,
    "an interrupted encryption goes on at the next stage, also with another passphrase, and is then not done again",
    async (harness) => {
      const volumeId = await harness.create({ parameters: PARAMETERS });
      const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
      await stage({ passphrase: OLD });
      if (!host.name.startsWith("fake")) await writeFile(harness);
      await unstage(harness, volumeId);
      const { devicePath } = await harness.singleLv();
      const { salt } = await headerKeys(harness);
      const run = (...args: string[]) => requireCryptsetup(harness, OLD, [...args, devicePath]);
      await beginEncryption(harness, devicePath, salt!);
      assertEquals((await headerKeys(harness)).isReencrypting, true);
      await assertFails("UNAUTHENTICATED", stage({ passphrase: NEW, volumeKey: "next" }), "key slots");
      const commands = await harness.exec.recordCommands(() =>
        stage({ passphrase: NEW, previousPassphrase: OLD, volumeKey: "next" })
      );
      const reencryptions = commands.filter((command) => command.includes("reencrypt"));
      assertEquals(reencryptions.length, 1, reencryptions.join("\n"));
      assertMatch(reencryptions[0]!, /--resume-only/);
      assertEquals([await opensAny(harness, OLD), await opensAny(harness, NEW)], [false, true]);
      assertEquals((await headerKeys(harness)).name, "next");
      if (!host.name.startsWith("fake")) assertEquals(await readFile(harness), "data");
      await unstage(harness, volumeId);

      // the process died after the end, before the name was recorded
      await run("config", "--subsystem", `last+00000000`);
      const more = await harness.exec.recordCommands(() => stage({ passphrase: NEW, volumeKey: "last" }));
      assertEquals(more.filter((command) => command.includes("reencrypt")), []);
      assertEquals((await headerKeys(harness)).name, "last");
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a volume whose data is encrypted by two volume keys is not copied, and its copy leaves nothing",
    async (harness) => {
      const volumeId = await harness.create({ parameters: PARAMETERS });
      const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
      await stage({ passphrase: OLD });
      await unstage(harness, volumeId);
      const { devicePath } = await harness.singleLv();
      await beginEncryption(harness, devicePath, (await headerKeys(harness)).salt!);
      const copy = createCopy(harness, { name: "copy", parameters: PARAMETERS }, { volumeId });
      await assertFails("FAILED_PRECONDITION", copy, "start a pod with the source");
      await harness.csi.controller.deleteVolume({ volumeId: volumeIdOf("copy") });
      await harness.waitUntilIdle();
      assertEquals((await harness.singleLv()).devicePath, devicePath);
      await stage({ passphrase: OLD, volumeKey: "next" });
      await unstage(harness, volumeId);
      const later = await createCopy(harness, { name: "copy", parameters: PARAMETERS }, { volumeId });
      await harness.csi.controller.deleteVolume({ volumeId: later });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a volume that is expanded while an encryption is interrupted has its data and the new size afterwards",
    async (harness) => {
      const volumeId = await harness.create({ parameters: PARAMETERS });
      const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
      await stage({ passphrase: OLD });
      if (!host.name.startsWith("fake")) await writeFile(harness);
      const volumePath = await harness.publish(volumeId, "pod");
      const before = await totalBytes(harness, volumeId, volumePath);
      await unpublish(harness, volumeId, "pod");
      await unstage(harness, volumeId);
      const { devicePath, size } = await harness.singleLv();
      await beginEncryption(harness, devicePath, (await headerKeys(harness)).salt!);
      const capacityRange = { requiredBytes: size + 64n * MiB };
      await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      await stage({ passphrase: OLD, volumeKey: "next" });
      await harness.publish(volumeId, "pod");
      const after = await totalBytes(harness, volumeId, volumePath);
      assert(after >= before + 50n * MiB, `it has ${after} bytes after growing from ${before}`);
      const { name, isReencrypting } = await headerKeys(harness);
      assertEquals({ name, isReencrypting }, { name: "next", isReencrypting: false });
      if (!host.name.startsWith("fake")) assertEquals(await readFile(harness), "data");
      await unpublish(harness, volumeId, "pod");
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );
}

/** Begins to encrypt a volume by another volume key, and ends before any data is. */
async function beginEncryption(harness: Harness, devicePath: string, salt: string): Promise<void> {
  await requireCryptsetup(harness, OLD, ["config", "--subsystem", `next+${salt}`, devicePath]);
  const begin = ["reencrypt", "--init-only", "--key-slot", "0", ...DERIVATION, ...FROM_INPUT, devicePath];
  await requireCryptsetup(harness, OLD, begin);
}

async function headerKeys(harness: Harness): Promise<HeaderKeys> {
  const { devicePath } = (await harness.lvs()).find(({ tags }) =>
    tags.some((tag) => tag.startsWith("denolith.volume="))
  )!;
  return parseHeaderKeys((await runCryptsetup(harness, "", ["luksDump", devicePath])).stdout);
}

async function writeFile(harness: Harness): Promise<void> {
  await Deno.writeTextFile(`${harness.folder}/staging/file`, "data");
}

async function readFile(harness: Harness): Promise<string> {
  return await Deno.readTextFile(`${harness.folder}/staging/file`);
}
