/**
 * The contract tests over real LVM, and the doctor's: `deno test` runs this in the guest, as one bundle.
 *
 * @module
 */

import { lifecycleContract } from "../contract/all.ts";
import { doctorTests } from "./doctor_suite.ts";
import { realHost } from "./helpers/real_host.ts";

const host = await realHost("test");
lifecycleContract(host);
doctorTests(host);
