/**
 * The volumes of other drivers that are attached to a node, and the disks that may be theirs. A VolumeAttachment names a volume,
 * and not a device: what is not certain counts against a disk.
 *
 * @module
 */

import { type ApiClient, orAbsent } from "../client/client.ts";
import { type Node, nodes, type VolumeAttachment, volumeAttachments } from "../api/objects.ts";

/** What is known of the volumes that are attached to a node. */
export interface Attachments {
  /** Those that are attached: their handles, and the paths of their devices where the drivers tell them. */
  readonly volumes: readonly { readonly name: string; readonly devicePaths: readonly string[] }[];
  /** The names of the VolumeAttachments that are about to be attached or detached. */
  readonly unsettled: readonly string[];
}

/** The fewest letters of a handle by which a disk is known: Cinder's disks have 20 of 36. */
const MIN_LETTERS = 8;

/** Reads the volumes that are attached to a node. @throws {ApiError} when they cannot be read */
export async function readAttachments(client: ApiClient, nodeName: string): Promise<Attachments> {
  const { items } = await client.list(volumeAttachments);
  const node = await orAbsent(client.get(nodes, { name: nodeName }));
  return attachmentsOf(items.filter(({ spec }) => spec?.nodeName === nodeName), node);
}

function attachmentsOf(attachments: readonly VolumeAttachment[], node: Node | undefined): Attachments {
  const isSettled = ({ metadata, status }: VolumeAttachment) =>
    status?.attached === true && metadata.deletionTimestamp === undefined;
  const attached = node?.status?.volumesAttached ?? [];
  const inUse = node?.status?.volumesInUse ?? [];
  return {
    volumes: [
      ...attached.map(({ name, devicePath }) => ({ name, devicePaths: devicePath === "" ? [] : [devicePath] })),
      ...inUse.map((name) => ({ name, devicePaths: [] })),
      ...attachments.map(({ status }) => ({ name: "", devicePaths: Object.values(status?.attachmentMetadata ?? {}) })),
    ],
    unsettled: [
      ...attachments.filter((each) => !isSettled(each)),
      ...withoutVolume(attachments.filter(isSettled), attached.map(({ name }) => name)),
    ].map(({ metadata: { name } }) => name),
  };
}

/**
 * Returns the attachments of drivers of which the Node does not list as many volumes: it learns of a volume after the attachment
 * says that it is attached, and only the Node has its handle.
 */
function withoutVolume(settled: readonly VolumeAttachment[], listed: readonly string[]): VolumeAttachment[] {
  const byDriver = Map.groupBy(settled, ({ spec }) => spec?.attacher ?? "");
  return [...byDriver].flatMap(([driver, attachments]) => {
    const known = listed.filter((name) => name.startsWith(`kubernetes.io/csi/${driver}^`)).length;
    return known < attachments.length ? attachments : [];
  });
}

/**
 * Returns the checks that a disk fails because of the volumes that are attached to its node.
 *
 * @param names all names of the disk in /dev/disk/by-id
 */
export function attachmentObjections(
  { path, names }: { readonly path: string; readonly names: readonly string[] },
  { volumes, unsettled }: Attachments,
): string[] {
  if (unsettled.length > 0) {
    return [
      `volumes are being attached or detached (VolumeAttachment ${
        unsettled.slice(0, 3).join(", ")
      }): it may be one of them`,
    ];
  }
  const known = names.map(lettersOf);
  const owner = volumes.find(({ name, devicePaths }) =>
    devicePaths.some((each) => each === path || names.includes(each.replace(/^.*\//, ""))) ||
    partsOf(name).some((part) => known.some((letters) => letters.includes(part) || hasStart(letters, part)))
  );
  if (owner === undefined) return [];
  return [`it may be the attached volume ${owner.name === "" ? owner.devicePaths.join(", ") : owner.name}`];
}

/** Returns the parts of a name such as `kubernetes.io/csi/DRIVER^HANDLE` by which a disk may be known. */
function partsOf(name: string): string[] {
  const handle = name.slice(name.indexOf("^") + 1);
  return handle.split(/[/#:]/).map(lettersOf).filter((part) => part.length >= MIN_LETTERS);
}

/** Reports whether letters contain the beginning of a handle as Cinder's disks have it. */
function hasStart(letters: string, part: string): boolean {
  return part.length >= 20 && letters.includes(part.slice(0, 17)); // 20 characters of a UUID, without their hyphens
}

function lettersOf(text: string): string {
  return text.toLowerCase().replaceAll(/[^a-z0-9]/g, "");
}
