import { thinCopyLifecycleContract } from "../contract/copies_thin_suite.ts";
import { clusterHost, connectedClusterHost } from "../contract/helpers/cluster_host.ts";
import { differencesContract } from "../contract/differences_suite.ts";
import { groupSnapshotsContract } from "../contract/group_snapshots_suite.ts";
import { limitsContract } from "../contract/limits_suite.ts";
import { snapshotsContract } from "../contract/snapshots_suite.ts";
import { thinLifecycleContract } from "../contract/thin_suite.ts";
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
