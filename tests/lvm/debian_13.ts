/**
 * The contract tests that depend most on the words of LVM's and util-linux's reports, over the tools of Debian 13: `deno test`
 * runs this in the guest, as one bundle.
 *
 * @module
 */

import { cowSnapshotsContract } from "../contract/cow_snapshots.ts";
import { staleMountsContract } from "../contract/stale_mounts.ts";
import { toolsContract } from "../contract/tools.ts";
import { realHost } from "./real_host.ts";

const host = await realHost("test");
for (const contract of [cowSnapshotsContract, staleMountsContract, toolsContract]) contract(host);
