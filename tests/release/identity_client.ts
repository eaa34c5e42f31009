/**
 * Calls the Identity service of the driver on the Unix socket that the first argument names, once it answers, and prints the
 * answer.
 *
 * @module
 */

import { connectByFetch } from "../contract/helpers/csi_client.ts";
import { pollUntil } from "../rig/poll_until.ts";

/** Time limit for the driver to answer, in milliseconds: it starts in a machine that is emulated. */
const TIMEOUT_MS = 300_000;

using client = connectByFetch(Deno.args[0]!);
const answers = async () => await client.identity.getPluginInfo().then(() => true, () => false);
await pollUntil(answers, { action: "call the driver", timeoutMs: TIMEOUT_MS });
const { name, vendorVersion } = await client.identity.getPluginInfo();
const { capabilities } = await client.identity.getPluginCapabilities();
console.log(`plugin ${name} ${vendorVersion} ${capabilities.length}`);
