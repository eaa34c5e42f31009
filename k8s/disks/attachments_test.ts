import { assertEquals } from "@std/assert";
import { type Node, nodes, type VolumeAttachment, volumeAttachments } from "../api/objects.ts";
import type { ApiClient } from "../client/client.ts";
import { attachmentObjections, readAttachments } from "./attachments.ts";

const NODE = "n1";

function attachment(name: string, nodeName: string, change: Partial<VolumeAttachment> = {}): VolumeAttachment {
  const spec = { attacher: "ebs", nodeName, source: { persistentVolumeName: "pvc-1" } };
  return { metadata: { name }, spec, status: { attached: true }, ...change };
}

/** Returns the objections to a disk with these names, of a node with these volumes. */
async function objections(
  names: readonly string[],
  attached: readonly string[] = [],
  attachments: readonly VolumeAttachment[] = [],
  devicePath = "",
) {
  const node: Node = {
    metadata: { name: NODE },
    status: { volumesAttached: attached.map((name) => ({ name, devicePath })) },
  };
  const client = {
    list: (resource: unknown) => {
      assertEquals(resource, volumeAttachments);
      return Promise.resolve({ items: attachments });
    },
    get: (resource: unknown) => {
      assertEquals(resource, nodes);
      return Promise.resolve(node);
    },
  } as unknown as ApiClient;
  return attachmentObjections({ path: "/dev/sdx", names }, await readAttachments(client, NODE));
}

/** Names of disks of cloud volumes, with the names by which Kubernetes knows these. */
const CLOUDS: Readonly<Record<string, readonly [disk: string, volume: string]>> = {
  "EBS": [
    "nvme-Amazon_Elastic_Block_Store_vol0abc123def4567890",
    "kubernetes.io/csi/ebs.csi.aws.com^vol-0abc123def4567890",
  ],
  "Compute Engine": [
    "google-pvc-5f1c-44",
    "kubernetes.io/csi/pd.csi.storage.gke.io^projects/p/zones/z/disks/pvc-5f1c-44",
  ],
  "Cinder": [
    "virtio-1f3c6b0a-94d1-4f1e-8",
    "kubernetes.io/csi/cinder.csi.openstack.org^1f3c6b0a-94d1-4f1e-8a3b-0123456789ab",
  ],
  "Hetzner": ["scsi-0HC_Volume_12345678", "kubernetes.io/csi/csi.hetzner.cloud^12345678"],
  "vSphere": ["wwn-0x6000c29abcdef0123456789abcdef012", "kubernetes.io/csi/x^6000C29a-bcde-f012-3456-789abcdef012"],
};

for (const [cloud, [disk, volume]] of Object.entries(CLOUDS)) {
  Deno.test(`attachmentObjections() knows the disk of an attached volume of ${cloud}`, async () => {
    assertEquals(await objections(["wwn-0x1", disk], [volume]), [`it may be the attached volume ${volume}`]);
    assertEquals(await objections(["nvme-Samsung_S4EVNX0N123456"], [volume]), []);
  });
}

Deno.test("attachmentObjections() knows a disk by the path that a driver tells", async () => {
  assertEquals(await objections(["ata-X"], ["a^b"], [], "/dev/sdx"), ["it may be the attached volume a^b"]);
  assertEquals(await objections(["ata-X"], ["a^b"], [], "/dev/disk/by-id/ata-X"), [
    "it may be the attached volume a^b",
  ]);
  const status = { attached: true, attachmentMetadata: { devicePath: "/dev/sdx" } };
  assertEquals(await objections(["ata-X"], ["kubernetes.io/csi/ebs^b"], [attachment("va", NODE, { status })]), [
    "it may be the attached volume /dev/sdx",
  ]);
});

Deno.test("attachmentObjections() waits for volumes that are being attached to this node or detached", async () => {
  const words = "volumes are being attached or detached (VolumeAttachment va): it may be one of them";
  const gone = { metadata: { name: "va", deletionTimestamp: "2026-01-01T00:00:00Z" } };
  for (const change of [{ status: { attached: false } }, { status: undefined } as never, gone]) {
    assertEquals(await objections(["ata-X"], [], [attachment("va", NODE, change)]), [words]);
  }
  const one = ["kubernetes.io/csi/ebs^vol-1"];
  assertEquals(await objections(["ata-X"], one, [attachment("va", "n2", gone), attachment("vb", NODE)]), []);
});

Deno.test("attachmentObjections() waits until the Node lists the volumes that are attached", async () => {
  const two = [attachment("va", NODE), attachment("vb", NODE)];
  const words = "volumes are being attached or detached (VolumeAttachment va, vb): it may be one of them";
  assertEquals(await objections(["ata-X"], ["kubernetes.io/csi/ebs^vol-1"], two), [words]);
  assertEquals(await objections(["ata-X"], ["kubernetes.io/csi/ebs^vol-1", "kubernetes.io/csi/other^vol-2"], two), [
    words,
  ]);
  assertEquals(await objections(["ata-X"], ["kubernetes.io/csi/ebs^vol-1", "kubernetes.io/csi/ebs^vol-2"], two), []);
});
