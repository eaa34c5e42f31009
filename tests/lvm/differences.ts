/**
 * The contract of changed blocks over real LVM: `deno test` runs this in the guest, as one bundle.
 *
 * @module
 */

import { differencesContract } from "../contract/differences.ts";
import { metadataSnapshotsContract } from "../contract/metadata_snapshots.ts";
import { realHost } from "./real_host.ts";

const host = await realHost("blocks");
differencesContract(host);
metadataSnapshotsContract(host);
