/**
 * The contract tests over real LVM, and the doctor's: `deno test` runs this in the guest, as one bundle. DATA_DISKS names the empty disks.
 *
 * @module
 */

import { contractTests } from "../contract/all.ts";
import { doctorTests } from "./doctor.ts";
import { realHost } from "./real_host.ts";

const [small, large] = (Deno.env.get("DATA_DISKS") ?? "").split(" ");
if (!small || !large) throw new Error("DATA_DISKS: must name two empty disks");
const host = await realHost([small, large]);
contractTests(host);
doctorTests(host);
