/**
 * A cluster of one node as a host of contract tests: the calls of the controller and of the node on one socket, and between them
 * objects in a fake API server.
 *
 * @module
 */

import { controllerHandlers } from "../../../csi/controller.ts";
import { groupControllerHandlers } from "../../../csi/group_controller.ts";
import { Controller, GroupController, Identity, Node, SnapshotMetadata } from "../../../csi/proto/csi_pb.ts";
import { identityHandlers } from "../../../csi/identity.ts";
import { nodeHandlers } from "../../../csi/node.ts";
import { serve } from "../../../csi/server.ts";
import { bindService } from "../../../csi/service.ts";
import { snapshotMetadataHandlers } from "../../../csi/snapshot_metadata.ts";
import { Locks } from "../../../base/locks.ts";
import { DRIVER, FakeCluster } from "../../fake/cluster/node_cluster.ts";
import { fakeHost } from "./fake_host.ts";
import type { Host, Serve } from "./host.ts";

const NODE = "node-1";

/** Serves a cluster. @param transfers whether the controller asks the agent for changed blocks */
const serveCluster = (transfers: boolean): Serve => async (exec, _groups, folder) => {
  const mountRoots = [folder];
  const cluster = await FakeCluster.start({ [NODE]: exec }, { mountRoots, cgroupRoot: `${folder}/cgroup`, transfers });
  if (transfers) {
    await cluster.nodes.waitFor(NODE, (node) => node?.status?.transfer !== undefined, { timeoutMs: 5_000 });
  }
  const { volumes, snapshots, groupSnapshots, lists } = cluster;
  const controllerLocks = new Locks();
  const { machine: { staging, health, locks, background } } = cluster.agent(NODE);
  const server = await serve(`${folder}/csi.sock`, [
    bindService(
      Identity,
      identityHandlers({ driver: DRIVER, version: "0", hasGroupSnapshots: true, ready: () => Promise.resolve(true) }),
    ),
    bindService(Controller, controllerHandlers({ volumes, snapshots, locks: controllerLocks })),
    bindService(GroupController, groupControllerHandlers(groupSnapshots, controllerLocks)),
    bindService(SnapshotMetadata, snapshotMetadataHandlers(lists)),
    bindService(Node, nodeHandlers({ staging, health, nodeId: NODE, mountRoots, locks })),
  ]);
  return {
    socketPath: server.path,
    idle: () => background.idle(),
    stop: async (graceMs) => {
      const drained = await server.close(graceMs);
      await cluster[Symbol.asyncDispose]();
      return drained;
    },
  };
};

/** The fake machine, as the node of a cluster. */
export const clusterHost: Host = { ...fakeHost, name: "cluster", serve: serveCluster(false) };

/** The same, with a way from the controller to the agent. */
export const connectedClusterHost: Host = {
  ...fakeHost,
  name: "cluster, connected",
  serve: serveCluster(true),
};
