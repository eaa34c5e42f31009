/**
 * The steps of lifecycles of volumes in which the driver crashes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { snapshotIdOf, type VolumeId, volumeIdOf } from "../../base/ids.ts";
import type { Capability } from "../contract/helpers/host.ts";
import { contentOf, ownerOf } from "../fake/machine/luks.ts";
import type { FakeLv, FakeMachine } from "../fake/machine/machine.ts";
import { assertPublished } from "./assertions.ts";
import { type Acknowledged, describeContent, KEPT, nothingAcknowledged } from "./invariants.ts";
import type { Lifecycle, Step, StepState } from "./orchestrator.ts";

const MiB = 1n << 20n;

/** The secret of encrypted volumes. */
export const SECRETS = { passphrase: "the passphrase" };

/** The steps of a volume's lifecycle, and the pod that writes to it. */
export class VolumeSteps {
  readonly state: StepState = {
    ...{ volumeId: "", snapshotId: "", copyId: "", acknowledged: nothingAcknowledged() },
    secrets: SECRETS,
  };
  readonly #machine: FakeMachine;
  readonly #folder: string;
  readonly #volumeCapability: Capability;
  readonly #mib: bigint;
  readonly #parameters: Record<string, string>;
  /** The name of the data that the pod writes. */
  readonly #data: string;

  constructor(
    machine: FakeMachine,
    folder: string,
    capability: Capability,
    mib = 32n,
    parameters: Record<string, string> = {},
  ) {
    this.#machine = machine;
    this.#folder = folder;
    this.#volumeCapability = capability;
    this.#mib = mib;
    this.#parameters = parameters;
    this.#data = `${parameters.erase === "none" ? KEPT : ""}the pod's data`;
    machine.fault = ({ program, args }) => {
      const changesContent = /^mk|^wipefs|^blkdiscard|^tune2fs|^xfs_db/.test(program) && args[0] !== "--no-act" ||
        args[0] === "luksFormat";
      const device = changesContent && machine.lvAt(args.at(-1)!);
      const lv = device && ownerOf(machine, device).lv;
      const deleted = lv && [...lv.tags].some((tag) => tag.startsWith("denolith.deleted="));
      if (lv && lv === this.state.written?.lv && !deleted) throw new Error(`${program} over the pod's data`);
      return undefined;
    };
  }

  /** Returns the lifecycle from creation to deletion, with two uses and the given steps between them. */
  lifecycle(middleSteps: readonly Step[]): Lifecycle {
    const end = [this.unpublish("reader"), this.unpublish(), this.unstage()];
    const steps = [this.create(), this.stage(), this.publish(), this.write(), ...middleSteps, ...end];
    const secondUse = [this.stage(), this.publish(), this.read(), this.unpublish(), this.unstage()];
    const deletion = [this.deleteSecondSnapshot(), this.deleteSnapshot(), this.delete()];
    const copyCleanup = [this.unstageCopy(), this.deleteCopy()];
    return {
      steps: [...steps, ...secondUse, ...deletion],
      cleanup: [this.create(), ...end, ...copyCleanup, ...deletion],
      state: this.state,
    };
  }

  /** Returns a short lifecycle, in which the volume is copied while it is in use. */
  copyLifecycle(copy: Step): Lifecycle {
    const { cleanup } = this.lifecycle([]);
    const steps = [this.create(), this.stage(), this.write(), copy, this.deleteCopy(), this.unstage(), this.delete()];
    return { steps, cleanup, state: this.state };
  }

  /** Formats the volume before it is staged, as an agent does. */
  format(): Step {
    return { name: "format", run: ({ staging }) => staging.format(this.state.volumeId as VolumeId) };
  }

  create(): Step {
    return {
      name: "CreateVolume",
      run: async ({ controller }) => {
        const { volume } = await controller.createVolume({
          name: "one",
          capacityRange: { requiredBytes: this.#mib * MiB },
          volumeCapabilities: [this.#volumeCapability],
          parameters: this.#parameters,
        });
        this.state.volumeId = volume!.volumeId;
        this.#acknowledged.volumes.set(volume!.volumeId, volume!.capacityBytes);
        assertEquals(this.#lvs().length, 1, "LVs of the volume");
      },
    };
  }

  stage(): Step {
    return {
      name: "NodeStageVolume",
      run: async ({ node }) => {
        const request = { volumeId: this.state.volumeId, stagingTargetPath: `${this.#folder}/staging` };
        const { secrets } = this.state;
        await node.nodeStageVolume({ ...request, volumeCapability: this.#volumeCapability, secrets });
        const [lv] = this.#lvs();
        const filesystem = contentOf(lv!).filesystemBytes;
        if (this.#volumeCapability.accessType?.case === "mount") {
          assertEquals(filesystem, (lv!.mapping ?? lv!).size, "filesystem's size");
          this.#acknowledged.mounts.set(request.stagingTargetPath, { readOnly: false, flags: [] });
        }
      },
    };
  }

  publish(name = "pod", readonly = false): Step {
    return {
      name: "NodePublishVolume",
      run: async ({ node }) => {
        const targetPath = `${this.#folder}/${name}`;
        const request = {
          volumeId: this.state.volumeId,
          targetPath,
          readonly,
          volumeCapability: this.#volumeCapability,
        };
        const { secrets } = this.state;
        await node.nodePublishVolume({ ...request, stagingTargetPath: `${this.#folder}/staging`, secrets });
        assertPublished(this.#machine, request);
        const { accessType } = this.#volumeCapability;
        const flags = accessType?.case === "mount" ? accessType.value.mountFlags ?? [] : [];
        this.#acknowledged.mounts.set(targetPath, { readOnly: readonly, flags });
      },
    };
  }

  write(): Step {
    return {
      name: "writing",
      run: () => {
        const lv = this.#lvs()[0]!;
        contentOf(lv).data.add(this.#data);
        this.state.written = { lv, content: JSON.stringify(contentOf(lv).signatures) };
        this.#acknowledged.contents.set(this.state.volumeId, describeContent(lv));
        return Promise.resolve();
      },
    };
  }

  read(): Step {
    return {
      name: "reading",
      run: () => {
        const lv = this.#lvs()[0]!;
        assert(lv === this.state.written?.lv, "it is another LV");
        assertEquals(JSON.stringify(contentOf(lv).signatures), this.state.written.content, "it is another filesystem");
        assert(contentOf(lv).data.has(this.#data), "the data is gone");
        return Promise.resolve();
      },
    };
  }

  expand(mib: bigint): Step {
    return {
      name: "ControllerExpandVolume",
      run: async ({ controller }) => {
        const capacityRange = { requiredBytes: mib * MiB };
        const { capacityBytes } = await controller.controllerExpandVolume({
          volumeId: this.state.volumeId,
          capacityRange,
        });
        assertEquals([capacityBytes, this.#lvs()[0]!.size], [mib * MiB, mib * MiB]);
        this.#acknowledged.volumes.set(this.state.volumeId, capacityBytes);
      },
    };
  }

  modify(mutableParameters: Record<string, string>, limits: string): Step {
    return {
      name: "ControllerModifyVolume",
      run: async ({ controller }) => {
        await controller.controllerModifyVolume({ volumeId: this.state.volumeId, mutableParameters });
        const tags = [...this.#lvs()[0]!.tags].filter((tag) => tag.startsWith("denolith.io="));
        assertEquals(tags, [`denolith.io=${limits}`]);
      },
    };
  }

  expandFilesystem(): Step {
    return {
      name: "NodeExpandVolume",
      run: async ({ node }) => {
        await node.nodeExpandVolume({ volumeId: this.state.volumeId, volumePath: `${this.#folder}/pod` });
        const lv = this.#lvs()[0]!;
        assertEquals(contentOf(lv).filesystemBytes, (lv.mapping ?? lv).size, "filesystem's size");
      },
    };
  }

  snapshot(parameters: Record<string, string> = {}): Step {
    return {
      name: "CreateSnapshot",
      run: async ({ controller }) => {
        const request = { name: "cut", sourceVolumeId: this.state.volumeId, parameters };
        const { snapshot } = await controller.createSnapshot(request);
        this.state.snapshotId = snapshot!.snapshotId;
        const snapshots = this.#machine.allLvs().map(({ lv }) => lv).filter(({ origin }) => origin !== undefined);
        assertEquals(snapshots.length, 1, "snapshots");
        this.#acknowledged.contents.set(snapshot!.snapshotId, describeContent(snapshots[0]!));
      },
    };
  }

  /**
   * Returns a step in which the pod writes until the COW space of its volume's snapshot is nearly full, and the driver
   * checks it.
   */
  fillCow(): Step {
    return {
      name: "fill the COW space",
      run: async ({ controller }) => {
        const snapshotLv = this.#machine.allLvs().map(({ lv }) => lv).find(({ origin }) => origin !== undefined)!;
        if (!snapshotLv.active) return; // nothing is copied into one that a crash left so
        if (snapshotLv.size === 8n * MiB) snapshotLv.cowPercent = 75;
        for (let attempts = 0; attempts < 50 && (snapshotLv.size === 8n * MiB || snapshotLv.suspended); attempts++) {
          await controller.listSnapshots({});
        }
        assertEquals([snapshotLv.size, snapshotLv.invalid], [12n * MiB, false]);
      },
    };
  }

  /** Takes another snapshot, lists what changed since the first one, and deletes it. */
  listChanges(): Step {
    return {
      name: "GetMetadataDelta",
      run: async ({ controller, listChanges }) => {
        const request = { name: "second cut", sourceVolumeId: this.state.volumeId };
        const { snapshot } = await controller.createSnapshot(request);
        await listChanges(this.state.snapshotId, snapshot!.snapshotId);
        await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      },
    };
  }

  deleteSecondSnapshot(): Step {
    return {
      name: "DeleteSnapshot of the second one",
      run: async ({ controller }) => void await controller.deleteSnapshot({ snapshotId: snapshotIdOf("second cut") }),
    };
  }

  deleteSnapshot(): Step {
    return {
      name: "DeleteSnapshot",
      run: async ({ controller }) => {
        if (this.state.snapshotId === "") {
          // Its caller crashed before it knew the id, and lists by name, as csi-snapshotter does.
          const { entries } = await controller.listSnapshots({});
          this.state.snapshotId = entries[0]?.snapshot?.snapshotId ?? "";
        }
        this.#acknowledged.contents.delete(this.state.snapshotId);
        if (this.state.snapshotId !== "") await controller.deleteSnapshot({ snapshotId: this.state.snapshotId });
      },
    };
  }

  /** Makes a volume from its snapshot or from itself, with all that the pod wrote, and nothing half-done. */
  copy(source: "snapshot" | "volume", parameters = this.#parameters): Step {
    return {
      name: "CreateVolume from a source",
      run: async ({ controller }) => {
        const type = source === "snapshot"
          ? { case: source, value: { snapshotId: this.state.snapshotId } } as const
          : { case: source, value: { volumeId: this.state.volumeId } } as const;
        this.state.copyId = volumeIdOf("copy");
        await controller.createVolume({
          name: "copy",
          capacityRange: { requiredBytes: (this.#mib + 16n) * MiB },
          volumeCapabilities: [this.#volumeCapability],
          volumeContentSource: { type },
          parameters,
        });
        const [original] = this.#lvs();
        const [lv, ...more] = this.#lvs(this.state.copyId);
        assertEquals(more, []);
        assertEquals([...lv!.content.data], [this.#data]);
        assertEquals(
          lv!.content.signatures.map(({ type }) => type),
          original!.content.signatures.map(({ type }) => type),
        );
        const uuids = [lv!, original!].flatMap(({ content }) => content.signatures.map(({ uuid }) => uuid));
        assertEquals(new Set(uuids).size, uuids.length, "UUIDs");
        assert(!lv!.content.isInconsistent, "half-changed");
        this.#acknowledged.volumes.set(this.state.copyId, (this.#mib + 16n) * MiB);
        this.#acknowledged.contents.set(this.state.copyId, describeContent(lv!));
      },
    };
  }

  stageCopy(): Step {
    return {
      name: "NodeStageVolume of the copy",
      run: async ({ node }) => {
        const staged = { volumeId: this.state.copyId, stagingTargetPath: `${this.#folder}/staging-copy` };
        await node.nodeStageVolume({ ...staged, volumeCapability: this.#volumeCapability });
        const [lv] = this.#lvs(this.state.copyId);
        assertEquals(lv!.content.filesystemBytes, lv!.size, "filesystem's size");
        await node.nodeUnstageVolume(staged);
      },
    };
  }

  unstageCopy(): Step {
    const stagingTargetPath = `${this.#folder}/staging-copy`;
    const volumeId = volumeIdOf("copy");
    return {
      name: "NodeUnstageVolume of the copy",
      run: ({ node }) => node.nodeUnstageVolume({ volumeId, stagingTargetPath }),
    };
  }

  deleteCopy(): Step {
    const volumeId = volumeIdOf("copy");
    return {
      name: "DeleteVolume of the copy",
      run: ({ controller }) => {
        this.#forget(volumeId);
        return controller.deleteVolume({ volumeId });
      },
    };
  }

  unpublish(name = "pod"): Step {
    const targetPath = `${this.#folder}/${name}`;
    return {
      name: "NodeUnpublishVolume",
      run: ({ node }) => {
        this.#acknowledged.mounts.delete(targetPath);
        return node.nodeUnpublishVolume({ volumeId: this.state.volumeId, targetPath });
      },
    };
  }

  unstage(): Step {
    const stagingTargetPath = `${this.#folder}/staging`;
    return {
      name: "NodeUnstageVolume",
      run: ({ node }) => {
        this.#acknowledged.mounts.delete(stagingTargetPath);
        return node.nodeUnstageVolume({ volumeId: this.state.volumeId, stagingTargetPath });
      },
    };
  }

  delete(): Step {
    return {
      name: "DeleteVolume",
      run: ({ controller }) => {
        this.#forget(this.state.volumeId);
        return controller.deleteVolume({ volumeId: this.state.volumeId });
      },
    };
  }

  get #acknowledged(): Acknowledged {
    return this.state.acknowledged; // which a test replaces by that of the crashed run
  }

  /** Forgets what is acknowledged of a volume that is to be deleted. */
  #forget(volumeId: string): void {
    this.#acknowledged.volumes.delete(volumeId);
    this.#acknowledged.contents.delete(volumeId);
  }

  #lvs(volumeId = this.state.volumeId): FakeLv[] {
    return this.#machine.allLvs().map(({ lv }) => lv).filter(({ tags }) => tags.has(`denolith.volume=${volumeId}`));
  }
}
