/**
 * The contract of changed blocks over real LVM: `deno test` runs this in the guest, as one bundle.
 *
 * @module
 */

import { differencesContract } from "../contract/differences_suite.ts";
import { metadataSnapshotsContract } from "../contract/metadata_snapshots_suite.ts";
import { realHost } from "./helpers/real_host.ts";

const host = await realHost("blocks");
differencesContract(host);
metadataSnapshotsContract(host);
