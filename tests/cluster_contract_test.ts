import { clusterHost } from "./contract/cluster_host.ts";
import { snapshotsContract } from "./contract/snapshots.ts";

snapshotsContract(clusterHost);
