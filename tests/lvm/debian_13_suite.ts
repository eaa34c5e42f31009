/**
 * The contract tests that depend most on the words of LVM's and util-linux's reports, over the tools of Debian 13: `deno test`
 * runs this in the guest, as one bundle.
 *
 * @module
 */

import { cowSnapshotsContract } from "../contract/cow_snapshots_suite.ts";
import { staleMountsContract } from "../contract/stale_mounts_suite.ts";
import { toolsContract } from "../contract/tools_suite.ts";
import { realHost } from "./helpers/real_host.ts";

const host = await realHost("test");
for (const contract of [cowSnapshotsContract, staleMountsContract, toolsContract]) contract(host);
