import { thinCopyLivesContract } from "./contract/copies_thin.ts";
import { clusterHost } from "./contract/cluster_host.ts";
import { limitsContract } from "./contract/limits.ts";
import { snapshotsContract } from "./contract/snapshots.ts";
import { thinLivesContract } from "./contract/thin.ts";

snapshotsContract(clusterHost);
limitsContract(clusterHost);
thinLivesContract(clusterHost);
thinCopyLivesContract(clusterHost);
