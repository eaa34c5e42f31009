/**
 * Makes ahead what the suites over real LVM and in a cluster need: the guest, csi-sanity, Kubernetes. Suites that need one of
 * them meanwhile wait for it.
 *
 * @module
 */

import { ensureCsiSanity } from "./csi_sanity.ts";
import { ensureGuestImage } from "./guest_image.ts";
import { ensureKubernetes, ensureSnapshotController } from "./kubernetes.ts";
import { ensureUml } from "./uml.ts";

const log = (line: string) => console.log(line);

// one after the other, so that other work goes on; what fails here is made, or reported, by who needs it
for (const ensure of [ensureGuestImage, ensureUml, ensureCsiSanity, ensureKubernetes, ensureSnapshotController]) {
  await ensure(log).catch((error) => console.log(error.message));
}
