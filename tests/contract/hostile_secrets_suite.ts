/**
 * Contract: hostile values in the secrets of encrypted volumes are refused, or taken as the bytes that they are.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { assertFails, contractTest, type Host, mountCapability } from "./helpers/host.ts";

const parameters = { encryption: "luks2" };

/** Passphrases that a command line, a terminal or a text file would not take as they are. */
const STRANGE_PASSPHRASES = [
  "--help",
  "-",
  "\n",
  "one\u0000two",
  "two lines\nof text\r\n",
  "$(reboot)`reboot`;reboot",
  "\u{1F4BE}\u202E\uFEFF",
  "x".repeat(4096),
];

/** Names of volume keys that are none. */
const REJECTED_VOLUME_KEYS = [
  "",
  " ",
  "a b",
  "../x",
  "a\n",
  "a\u0000",
  "$(reboot)",
  "--key-file=/etc/shadow",
  "a+00000000",
  "x".repeat(33),
];

/** Registers the tests. */
export function hostileSecretsContract(host: Host): void {
  contractTest(host, "hostile: passphrases are the bytes that they are, whatever they look like", async (harness) => {
    const { node, controller } = harness.csi;
    for (const passphrase of STRANGE_PASSPHRASES) {
      const volumeId = await harness.create({ parameters });
      const stage = (value: string) => harness.stage(volumeId, mountCapability(), { secrets: { passphrase: value } });
      const unstage = async (stagingTargetPath: string) => {
        await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      };
      await unstage(await stage(passphrase));
      await assertFails("UNAUTHENTICATED", stage(`${passphrase.slice(0, -1)}#`));
      await unstage(await stage(passphrase));
      await controller.deleteVolume({ volumeId });
    }
    await harness.waitUntilIdle();
    assertEquals(await harness.lvs(), []);
  });

  contractTest(host, "hostile: names of volume keys that cannot be recorded change nothing", async (harness) => {
    const secrets = { passphrase: "the only one" };
    const volumeId = await harness.create({ parameters });
    const stage = (volumeKey: string) =>
      harness.stage(volumeId, mountCapability(), { secrets: { ...secrets, volumeKey } });
    const unstage = async (stagingTargetPath: string) => {
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    };
    await unstage(await stage("first"));
    for (const volumeKey of REJECTED_VOLUME_KEYS) {
      const commands = await harness.exec.recordCommands(() => assertFails("INVALID_ARGUMENT", stage(volumeKey)));
      assert(!commands.some((command) => command.startsWith("cryptsetup")), commands.join("\n"));
    }
    await unstage(await stage("-y")); // a name that looks like an option
    await unstage(await stage("first"));
    await harness.csi.controller.deleteVolume({ volumeId });
  });
}
