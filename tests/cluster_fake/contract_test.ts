import { thinCopyLifecycleContract } from "../contract/copies_thin.ts";
import { clusterHost, connectedClusterHost } from "../contract/cluster_host.ts";
import { differencesContract } from "../contract/differences.ts";
import { groupSnapshotsContract } from "../contract/group_snapshots.ts";
import { limitsContract } from "../contract/limits.ts";
import { snapshotsContract } from "../contract/snapshots.ts";
import { thinLifecycleContract } from "../contract/thin.ts";

snapshotsContract(clusterHost);
groupSnapshotsContract(clusterHost);
limitsContract(clusterHost);
thinLifecycleContract(clusterHost);
thinCopyLifecycleContract(clusterHost);
differencesContract(connectedClusterHost);
