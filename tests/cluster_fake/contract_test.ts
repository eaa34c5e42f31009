import { thinCopyLifecycleContract } from "../contract/copies_thin.ts";
import { clusterHost, connectedClusterHost } from "../contract/cluster_host.ts";
import { differencesContract } from "../contract/differences.ts";
import { groupSnapshotsContract } from "../contract/group_snapshots.ts";
import { limitsContract } from "../contract/limits.ts";
import { snapshotsContract } from "../contract/snapshots.ts";
import { thinLifecycleContract } from "../contract/thin.ts";
import { drawer } from "../rig/sample.ts";

/** One in so many of the tests runs in `task test`, which runs all over one machine; all run in `task test:crashes`. */
const isDrawn = await drawer(4);

for (
  const contract of [
    snapshotsContract,
    groupSnapshotsContract,
    limitsContract,
    thinLifecycleContract,
    thinCopyLifecycleContract,
  ]
) {
  contract({ ...clusterHost, isDrawn });
}
differencesContract({ ...connectedClusterHost, isDrawn });
