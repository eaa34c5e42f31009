/**
 * The cases of the chapter "VolumeGroupSnapshot not ready".
 *
 * @module
 */

import { volumeGroupSnapshots } from "../../../k8s/api/snapshot_objects.ts";
import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
import { type Chapter, once } from "./case.ts";
import { waitFor } from "./stage.ts";

/** The chapter. */
export const GROUP_SNAPSHOTS: Chapter = {
  asks: ["why", "volumegroupsnapshot/both"],
  cases: {
    "No content, and no events": once("NoSnapshotController", async (stage) => {
      await stage.start();
      stage.addGroupSnapshot([]);
    }),
    VolumesOnSeveralNodes: async (stage) => {
      await stage.start({ machines: { n1: machineWith({ data: 100n * MiB }), n2: machineWith({ data: 100n * MiB }) } });
      await stage.bindClaim({ size: "80Mi" });
      await stage.bindClaim({ name: "far", size: "80Mi" });
      stage.addGroupSnapshot(["data", "far"]);
    },
    MustNotBeSuspended: async (stage) => {
      await stage.start();
      await stage.bindClaim();
      stage.machine.host.swapLvs.add(stage.lv);
      stage.addGroupSnapshot(["data"]);
    },
    SuspendedTooLong: "the time is that of the agent; lvm/group_snapshots/suspension_test.ts lets it pass",
    NoSpace: async (stage) => {
      await stage.start();
      await stage.bindClaim({ size: "160Mi" });
      stage.addGroupSnapshot(["data"]);
    },
    "The content is left after the VolumeGroupSnapshot was deleted": once("ContentLeft", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      stage.addGroupSnapshot(["data"]);
      await waitFor("the group snapshot", () => stage.groupContent()?.status?.readyToUse === true || undefined);
      await stage.delete(volumeGroupSnapshots, "both");
    }),
  },
};
