/**
 * Lifecycles of volumes in which the driver crashes.
 *
 * @module
 */

import { blockCapability, mountCapability } from "../contract/helpers/host.ts";
import { type FakeMachine, newUuid } from "../fake/machine/machine.ts";
import { KEPT } from "./invariants.ts";
import { ImportSteps } from "./import_steps.ts";
import { GroupSteps } from "./group_steps.ts";
import type { Lifecycle, Scenario } from "./orchestrator.ts";
import { PassphraseSteps } from "./passphrase_steps.ts";
import { VolumeSteps } from "./volume_steps.ts";

/** The scenarios by name. */
export const SCENARIOS: Readonly<Record<string, Scenario>> = {
  "ext4, grown while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"));
    return volume.lifecycle([volume.expand(64n), volume.expandFilesystem()]);
  },
  "xfs, grown while not in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("xfs"), 320n);
    return volume.lifecycle([
      volume.unpublish(),
      volume.unstage(),
      volume.expand(400n),
      volume.stage(),
      volume.publish(),
    ]);
  },
  "ext4, with flags of its mounts": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4", ["nosuid", "nodev"]));
    return volume.lifecycle([volume.publish("reader", true), volume.unpublish("reader")]);
  },
  "btrfs, read-only at a second target": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("btrfs"), 320n);
    return volume.lifecycle([volume.publish("reader", true), volume.unpublish("reader")]);
  },
  "block, read-only": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability());
    return volume.lifecycle([volume.unpublish(), volume.publish("pod", true)]);
  },
  "ext4, snapshotted, grown with the snapshot": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"));
    return volume.lifecycle([
      volume.snapshot(),
      volume.unpublish(),
      volume.unstage(),
      volume.expand(64n),
      volume.stage(),
      volume.publish(),
      volume.deleteSnapshot(),
    ]);
  },
  "block, snapshotted, with COW space that is extended": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability());
    return volume.lifecycle([volume.snapshot({ snapSize: "8Mi" }), volume.fillCow()]);
  },
  "block, snapshotted, deleted right after its snapshot": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability());
    return volume.lifecycle([volume.snapshot(), volume.unpublish(), volume.unstage(), volume.deleteSnapshot()]);
  },
  "ext4, with limits that change while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 32n, { readIops: "500", writeBps: "4Mi" });
    return volume.lifecycle([
      volume.modify({ readIops: "100" }, "ri100:wb4Mi"),
      volume.expand(64n),
      volume.expandFilesystem(),
    ]);
  },
  "ext4 in a thin pool, snapshotted, grown while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 32n, { thinProvision: "yes" });
    return volume.lifecycle([volume.snapshot(), volume.expand(64n), volume.expandFilesystem()]);
  },
  "block in a thin pool, with a list of changed blocks": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability(), 32n, { thinProvision: "yes" });
    return volume.lifecycle([volume.snapshot(), volume.listChanges()]);
  },
  "ext4, restored from a snapshot": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"));
    return volume.lifecycle([volume.snapshot(), volume.copy("snapshot"), volume.stageCopy(), volume.deleteCopy()]);
  },
  "xfs, cloned while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("xfs"), 320n);
    return volume.lifecycle([volume.copy("volume"), volume.stageCopy(), volume.deleteCopy()]);
  },
  "block, cloned": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability());
    return volume.lifecycle([volume.copy("volume"), volume.deleteCopy()]);
  },
  "ext4 in a thin pool, cloned at once while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 32n, { thinProvision: "yes" });
    return volume.copyLifecycle(volume.copy("volume"));
  },
  "ext4, cloned into a thin pool": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"));
    return volume.copyLifecycle(volume.copy("volume", { thinProvision: "yes" }));
  },
  "ext4 in a thin pool, cloned to a thick volume": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 32n, { thinProvision: "yes" });
    return volume.copyLifecycle(volume.copy("volume", {}));
  },
  "ext4, where another filesystem was": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"));
    const prepare = () => void machine.groups[0]!.residualSignatures.push({ type: "xfs", uuid: `${KEPT} another` });
    return { ...volume.lifecycle([]), prepare };
  },
  "ext4, snapshotted with a thin volume as a group while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"));
    return new GroupSteps(machine, volume, { thinProvision: "yes" }).lifecycle();
  },
  "ext4 in a thin pool, snapshotted with a thick volume as a group while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 32n, { thinProvision: "yes" });
    return new GroupSteps(machine, volume, {}).lifecycle();
  },
  "ext4, with a cache, grown while in use": (machine, folder) => withCache(machine, folder, { layout: "cache" }),
  "ext4, encrypted, with a writecache, not erased, grown while in use": (machine, folder) =>
    withCache(machine, folder, { layout: "writecache", encryption: "luks2", erase: "none" }),
  "never used": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"));
    const steps = [volume.create(), volume.delete()];
    return { steps, cleanup: steps, state: volume.state };
  },
  "ext4, formatted before it is staged": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"));
    const { steps: [create, ...others], ...lifecycle } = volume.lifecycle([]);
    return { ...lifecycle, steps: [create!, volume.format(), ...others] };
  },
  "xfs, formatted and never used": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("xfs"), 320n);
    const steps = [volume.create(), volume.format(), volume.delete()];
    return { steps, cleanup: [volume.create(), volume.delete()], state: volume.state };
  },
  "ext4, encrypted, grown while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 48n, { encryption: "luks2" });
    return volume.lifecycle([
      volume.snapshot(),
      volume.deleteSnapshot(),
      volume.expand(96n),
      volume.expandFilesystem(),
    ]);
  },
  "block, encrypted, in a thin pool, not erased": (machine, folder) => {
    const parameters = { encryption: "luks2", thinProvision: "yes", erase: "none" };
    const volume = new VolumeSteps(machine, folder, blockCapability(), 32n, parameters);
    return volume.lifecycle([volume.unpublish(), volume.publish("pod", true)]);
  },
  "ext4, encrypted, with another passphrase while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 48n, { encryption: "luks2" });
    return new PassphraseSteps(machine, volume).inUse();
  },
  "block, encrypted, with another passphrase between two uses": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability(), 32n, { encryption: "luks2" });
    return new PassphraseSteps(machine, volume).betweenUses();
  },
  "block, encrypted, with another passphrase that is taken back after a crash": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability(), 32n, { encryption: "luks2" });
    return new PassphraseSteps(machine, volume).takenBack();
  },
  "ext4, encrypted, with another passphrase that is taken back after a crash while in use": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 48n, { encryption: "luks2" });
    return new PassphraseSteps(machine, volume).takenBackInUse();
  },
  "block, encrypted, with a third passphrase after a crash": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability(), 32n, { encryption: "luks2" });
    return new PassphraseSteps(machine, volume).replacedAgain();
  },
  "ext4, encrypted, with another volume key": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 48n, { encryption: "luks2" });
    return new PassphraseSteps(machine, volume).newVolumeKey();
  },
  "ext4, encrypted, with another volume key, and expanded after a crash": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 48n, { encryption: "luks2" });
    return new PassphraseSteps(machine, volume).newVolumeKeyThenGrown();
  },
  "ext4, imported": (machine, folder) => new ImportSteps(machine, folder, mountCapability("ext4")).used(),
  "block, imported": (machine, folder) =>
    new ImportSteps(machine, folder, blockCapability(), { format: { state: "raw" } }).used(),
  "ext4, imported without a signature, and never used": (machine, folder) =>
    new ImportSteps(machine, folder, mountCapability("ext4")).unused(),
  "ext4, imported from a thin pool that does not zero new blocks": (machine, folder) => {
    const thin = { pool: "theirs", poolSize: { percent: 80n } };
    return new ImportSteps(machine, folder, mountCapability("ext4"), { thin }).unzeroed();
  },
  "not erased": (machine, folder) => {
    const volume = new VolumeSteps(machine, folder, blockCapability(), 32n, { erase: "none" });
    return volume.lifecycle([]);
  },
};

/** A volume with a cache, on a physical volume that a group has for caches. */
function withCache(machine: FakeMachine, folder: string, parameters: Record<string, string>): Lifecycle {
  const volume = new VolumeSteps(machine, folder, mountCapability("ext4"), 48n, { cacheSize: "32Mi", ...parameters });
  const prepare = () => {
    const [group] = machine.groups;
    group!.pvs.push({ path: "/dev/vdz", uuid: newUuid(), tags: new Set(["denolith.cache"]) });
  };
  return { ...volume.lifecycle([volume.expand(96n), volume.expandFilesystem()]), prepare };
}
