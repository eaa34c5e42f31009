/**
 * Contract tests over real LVM with Debian's own settings: dmeventd monitors pools and snapshots, LVM looks for components of
 * md, and udev runs pvscan for each change. The other suites switch these off. `deno test` runs this in the guest, as one
 * bundle.
 *
 * @module
 */

import { snapshotAutoextendContract } from "../contract/snapshot_autoextend.ts";
import { snapshotsContract } from "../contract/snapshots.ts";
import { thinContract } from "../contract/thin.ts";
import { realHost } from "./real_host.ts";

const host = await realHost("defaults");
snapshotsContract(host);
thinContract(host);
snapshotAutoextendContract(host);
