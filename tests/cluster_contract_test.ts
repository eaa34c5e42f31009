import { clusterHost } from "./contract/cluster_host.ts";
import { limitsContract } from "./contract/limits.ts";
import { snapshotsContract } from "./contract/snapshots.ts";

snapshotsContract(clusterHost);
limitsContract(clusterHost);
