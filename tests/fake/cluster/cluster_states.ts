/**
 * States of a cluster, as the plugin reads them, for tests of what it shows.
 *
 * @module
 */

import type { ClusterState } from "../../../plugin/diagnosis/cluster_state.ts";
import { DRIVER } from "./control_plane.ts";

/** Returns the state of a cluster in which there is only what is given. */
export function clusterState(more: Partial<ClusterState> & Pick<ClusterState, "now">): ClusterState {
  return {
    ...{ driver: DRIVER, nodes: [], lvmNodes: [], agentLeases: [], provisionerLeases: [], volumes: [], snapshots: [] },
    ...{ persistentVolumes: [], contents: [], pendingClaims: [], unread: [], ...more },
  };
}
