/**
 * The contract's tests of erasure over real LVM: `deno test` runs this in the guest, as one bundle, beside the others.
 *
 * @module
 */

import { erasureContract } from "../contract/erasure_suite.ts";
import { realHost } from "./helpers/real_host.ts";

erasureContract(await realHost("erasure"));
