/**
 * external-snapshot-metadata beside the controller, by the files of deploy/snapshot-metadata.
 *
 * @module
 */

import { parse } from "@std/yaml";
import { CA, makeServerCertificate } from "../../rig/certificates.ts";
import type { Cluster } from "../../rig/cluster.ts";
import type { ControlPlane } from "../../rig/control_plane.ts";
import {
  ensureSnapshotMetadataCrd,
  SNAPSHOT_METADATA_IMAGE,
  SNAPSHOT_METADATA_PROGRAMS,
} from "../../rig/snapshot_metadata.ts";
import { applySnapshotCrds } from "../snapshots.ts";

const FILES = new URL("../../../deploy/snapshot-metadata/", import.meta.url);

/** The namespace of the driver. */
const NAMESPACE = "denolith-system";

/** The name by which the Service is reached. */
export const SNAPSHOT_METADATA_HOST = `csi-snapshot-metadata.${NAMESPACE}.svc`;

/** Returns the values of the chart, with the image that the node has. */
export async function snapshotMetadataValues(): Promise<Record<string, unknown>> {
  const values = parse(await Deno.readTextFile(new URL("values.yaml", FILES))) as {
    controller: { extraContainers: Record<string, unknown>[] };
  };
  const extraContainers = values.controller.extraContainers.map((container) => ({
    ...container,
    image: SNAPSHOT_METADATA_IMAGE,
    imagePullPolicy: "Never",
    command: [SNAPSHOT_METADATA_PROGRAMS.sidecar],
  }));
  return { ...values, controller: { ...values.controller, extraContainers } };
}

/** Makes the certificate, and applies the kinds and the manifests, before the driver is deployed. */
export async function prepareSnapshotMetadata(
  { controlPlane }: Cluster,
  log: (line: string) => void,
): Promise<void> {
  await applySnapshotMetadata(controlPlane, log);
  const { folder } = controlPlane;
  await makeServerCertificate(folder, "snapshot-metadata", [SNAPSHOT_METADATA_HOST]);
  const [cert, key] = ["crt", "key"].map((end) => folder.file(`certs/snapshot-metadata.${end}`));
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
  await controlPlane.kubectl(["apply", "--filename", "-"], { stdin: JSON.stringify(namespace) });
  await controlPlane.kubectl([
    ...["--namespace", NAMESPACE, "create", "secret", "tls", "csi-snapshot-metadata-tls"],
    ...[`--cert=${cert}`, `--key=${key}`],
  ]);
  await controlPlane.kubectl(["apply", "--filename", "-"], { stdin: await manifest("Service", controlPlane) });
}

/**
 * Applies the kinds of snapshots and of the sidecar, its rights, and its SnapshotMetadataService.
 *
 * @param address where the sidecar answers; the Service by default
 */
export async function applySnapshotMetadata(
  controlPlane: ControlPlane,
  log: (line: string) => void,
  address?: string,
): Promise<void> {
  log("external-snapshot-metadata: its kind and its rights");
  await applySnapshotCrds(controlPlane, log);
  const crd = await ensureSnapshotMetadataCrd(log);
  await controlPlane.kubectl(["apply", "--filename", crd]);
  await controlPlane.kubectl(["wait", "--for=condition=Established", "--filename", crd, "--timeout=60s"]);
  await controlPlane.kubectl(["apply", "--filename", new URL("rbac.yaml", FILES).pathname]);
  const service = await manifest("SnapshotMetadataService", controlPlane);
  const stdin = address === undefined ? service : service.replace(/address: .*/, `address: ${address}`);
  await controlPlane.kubectl(["apply", "--filename", "-"], { stdin });
}

/** Returns an object of service.yaml, with the authority of the cluster. */
async function manifest(kind: string, { folder }: ControlPlane): Promise<string> {
  const documents = (await Deno.readTextFile(new URL("service.yaml", FILES))).split("\n---\n");
  const document = documents.find((text) => text.includes(`\nkind: ${kind}\n`) || text.startsWith(`kind: ${kind}\n`))!;
  return document.replace("CA_CERTIFICATE", (await Deno.readFile(folder.file(CA))).toBase64());
}
