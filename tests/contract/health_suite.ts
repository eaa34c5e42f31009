/**
 * Contract: the health of volumes and of what they are in, and where snapshots are usable from.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import {
  ControllerServiceCapability_RPC_Type as ControllerRpc,
  NodeServiceCapability_RPC_Type as NodeRpc,
  PluginCapability_Service_Type as Service,
  type VolumeHealth,
} from "../../csi/proto/csi_pb.ts";
import { topologyOf } from "../../csi/topology.ts";
import { assertFails, contractTest, type Host } from "./helpers/host.ts";

const UNKNOWN = "v1-00000000000000000000000000000000";

/** Registers the tests. */
export function healthContract(host: Host): void {
  contractTest(
    host,
    "a volume that is well has a health without problems, for the controller and the node",
    async (harness) => {
      const { controller, node } = harness.csi;
      const volumeId = await harness.create();
      const stagingTargetPath = await harness.stage(volumeId);
      const volumePublishPath = await harness.publish(volumeId);
      const healthOf = ({ volumeHealth }: { volumeHealth?: VolumeHealth | undefined }) =>
        [volumeHealth?.volumeId, volumeHealth?.healthStatuses.length] as const;
      const healthy = [volumeId, 0] as const;
      assertEquals(healthOf(await controller.controllerGetVolumeHealth({ volumeId })), healthy);
      const paths = { volumePublishPath, stagingTargetPath };
      assertEquals(healthOf(await node.nodeGetVolumeHealth({ volumeId, ...paths })), healthy);
      assertEquals(healthOf(await node.nodeGetVolumeHealth({ volumeId })), healthy);
      assertEquals((await controller.controllerListVolumeHealth({})).entries, []);
      assertEquals((await node.nodeGetStorageHealth({})).backendHealth, []);
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: volumePublishPath });
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "the calls for health refuse invalid requests, and answer NOT_FOUND for unknown volumes",
    async (harness) => {
      const { controller, node } = harness.csi;
      await assertFails("INVALID_ARGUMENT", controller.controllerGetVolumeHealth({}), "volume_id");
      await assertFails("INVALID_ARGUMENT", node.nodeGetVolumeHealth({}), "volume_id");
      for (const volumeId of [UNKNOWN, "somebody-else's"]) {
        await assertFails("NOT_FOUND", controller.controllerGetVolumeHealth({ volumeId }));
        await assertFails("NOT_FOUND", node.nodeGetVolumeHealth({ volumeId }));
      }
      const relative = node.nodeGetVolumeHealth({ volumeId: UNKNOWN, volumePublishPath: "mnt" });
      await assertFails("INVALID_ARGUMENT", relative, "volume_publish_path");
      await assertFails("INVALID_ARGUMENT", controller.controllerListVolumeHealth({ maxEntries: -1 }), "max_entries");
      await assertFails("ABORTED", controller.controllerListVolumeHealth({ startingToken: "nonsense" }));
    },
  );

  contractTest(host, "the driver advertises volume health, and where snapshots are accessible", async (harness) => {
    const { identity, controller, node } = harness.csi;
    const services = (await identity.getPluginCapabilities({})).capabilities.map(({ type }) =>
      type.case === "service" ? type.value.type : undefined
    );
    for (const service of [Service.VOLUME_ACCESSIBILITY_CONSTRAINTS, Service.SNAPSHOT_ACCESSIBILITY_CONSTRAINTS]) {
      assertEquals(services.includes(service), true, Service[service]);
    }
    const controllerRpcs = (await controller.controllerGetCapabilities({})).capabilities.map(({ type }) =>
      type.value?.type
    );
    for (const rpc of [ControllerRpc.GET_VOLUME_HEALTH, ControllerRpc.LIST_VOLUME_HEALTH]) {
      assertEquals(controllerRpcs.includes(rpc), true, ControllerRpc[rpc]);
    }
    const nodeRpcs = (await node.nodeGetCapabilities({})).capabilities.map(({ type }) => type.value?.type);
    for (const rpc of [NodeRpc.GET_VOLUME_HEALTH, NodeRpc.GET_STORAGE_HEALTH]) {
      assertEquals(nodeRpcs.includes(rpc), true, NodeRpc[rpc]);
    }
  });

  contractTest(
    host,
    "createSnapshot() takes a snapshot where it is requested, returns its topology, and takes none elsewhere",
    async (harness) => {
      const { controller, node } = harness.csi;
      const { accessibleTopology } = await node.nodeGetInfo({});
      const sourceVolumeId = await harness.create();
      const request = { name: "where", sourceVolumeId, parameters: { snapSize: "8Mi" } };
      const otherNode = { requisite: [topologyOf("node-2")], preferred: [topologyOf("node-2")] };
      const rejected = controller.createSnapshot({ ...request, accessibilityRequirements: otherNode });
      await assertFails("RESOURCE_EXHAUSTED", rejected, "node-1");
      assertEquals((await controller.listSnapshots({})).entries, [], "no snapshot was created");

      const thisNode = { requisite: [topologyOf("node-2"), accessibleTopology!], preferred: [accessibleTopology!] };
      const { snapshot } = await controller.createSnapshot({ ...request, accessibilityRequirements: thisNode });
      assertEquals(snapshot?.accessibleTopology, [accessibleTopology!]);
      assertEquals((await controller.createSnapshot(request)).snapshot, snapshot, "who asks for nowhere gets it there");
      const { snapshotId } = snapshot!;
      assertEquals((await controller.getSnapshot({ snapshotId })).snapshot, snapshot);
      assertEquals((await controller.listSnapshots({})).entries.map((entry) => entry.snapshot), [snapshot]);
      const again = controller.createSnapshot({ ...request, accessibilityRequirements: otherNode });
      await assertFails("RESOURCE_EXHAUSTED", again, "node-1");
      await controller.deleteSnapshot({ snapshotId });
      await controller.deleteVolume({ volumeId: sourceVolumeId });
    },
  );
}
