/**
 * Contract tests over real LVM with Debian's own settings: dmeventd monitors pools and snapshots, LVM looks for components of
 * md, and udev runs pvscan for each change. The other suites switch these off. `deno test` runs this in the guest, as one
 * bundle.
 *
 * @module
 */

import { snapshotAutoextendContract } from "../contract/snapshot_autoextend_suite.ts";
import { snapshotsContract } from "../contract/snapshots_suite.ts";
import { thinContract } from "../contract/thin_suite.ts";
import { realHost } from "./helpers/real_host.ts";

const host = await realHost("defaults");
snapshotsContract(host);
thinContract(host);
snapshotAutoextendContract(host);
