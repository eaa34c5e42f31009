/**
 * Helpers of the suite of encrypted volumes: their class, their Secrets, and what a passphrase opens on the nodes.
 *
 * @module
 */

import type { Condition } from "../../../../k8s/api/conditions.ts";
import type { LvmVolume } from "../../../../k8s/api/lvm_objects.ts";
import { parseHeaderKeys } from "../../../../lvm/encryption/volume_key.ts";
import type { Node } from "../../../rig/node.ts";
import { DRIVER } from "./objects.ts";
import type { TestNamespace } from "./test_namespace.ts";

/** Returns a passphrase that nothing else contains. */
export function newPassphrase(): string {
  return `denolith-test-${crypto.randomUUID()}`;
}

/** Makes a class of encrypted volumes with a Secret `CLAIM-luks` for each claim. @returns its name */
export async function createEncryptedClass(
  ns: TestNamespace,
  more: Readonly<Record<string, string>> = {},
): Promise<string> {
  const secrets = ["node-stage", "node-publish"].map((call) => `csi.storage.k8s.io/${call}-secret`).flatMap((key) => [
    [`${key}-name`, "${pvc.name}-luks"],
    [`${key}-namespace`, "${pvc.namespace}"],
  ]);
  const parameters = { encryption: "luks2", ...Object.fromEntries(secrets), ...more };
  return await ns.createStorageClass("encrypted", { parameters });
}

/** Gives the Secret of a claim these keys alone. */
export async function setSecret(ns: TestNamespace, claim: string, data: Readonly<Record<string, string>>) {
  const object = {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: `${claim}-luks` },
    data: Object.fromEntries(Object.entries(data).map(([key, value]) => [key, btoa(value)])),
  };
  await ns.apply(object);
}

/**
 * Returns the LVs on a node that have a LUKS header which a passphrase opens. Each active LV of all groups is tried, whatever
 * it is.
 */
export async function lvsOpenedBy(ns: TestNamespace, passphrase: string, node: Node = ns.node): Promise<string[]> {
  const devices = "$(lvs --noheadings -o lv_dm_path -S lv_active=active)";
  const open =
    `printf %s '${passphrase}' | cryptsetup open --test-passphrase --type luks2 --batch-mode --key-file - $device`;
  const opened = await ns.runOnNode(
    `for device in ${devices}; do ${open} 2>/dev/null && echo $device; done; true`,
    node,
  );
  return opened.split("\n").filter((line) => line !== "");
}

/** Returns the names of the LVs with backups of LUKS headers on a node. */
export async function headerBackups(ns: TestNamespace, node: Node = ns.node): Promise<string[]> {
  const names = await ns.runOnNode("lvs --noheadings -o lv_name", node);
  return names.split("\n").map((name) => name.trim()).filter((name) => name.startsWith("hdr-"));
}

/** Returns the types of signatures on an LV. */
export async function signaturesOf(ns: TestNamespace, { node, device }: { node: string; device: string }) {
  const command = `wipefs --no-act --noheadings --output TYPE ${device} | sort -u`;
  return (await ns.runOnNode(command, ns.cluster.node(node))).trim().split("\n");
}

/** Returns the condition of a volume about its keys, if it has one. */
export function keysOf(volume: LvmVolume | undefined): Condition | undefined {
  return volume?.status?.conditions?.find(({ type }) => type === "KeysChanged");
}

/** Leaves what a change of the passphrase leaves when it is interrupted: the backup of the header, and two key slots. */
export async function interruptChange(
  ns: TestNamespace,
  node: Node,
  { volume, group, device, old, next }: {
    readonly volume: string;
    readonly group: string;
    readonly device: string;
    readonly old: string;
    readonly next: string;
  },
): Promise<void> {
  const name = `hdr-${volume.slice("v1-".length)}`;
  const { salt, slots } = parseHeaderKeys(await ns.runOnNode(`cryptsetup luksDump ${device}`, node));
  const header = `denolith.header=${volume}:0:0=${slots.get(0)}:${salt}`;
  const tags = [`denolith=${DRIVER}`, header, "denolith.luks"].map((tag) => `--addtag ${tag}`);
  const backup = `/dev/mapper/${group}-${name.replaceAll("-", "--")}`;
  const derivation = "--pbkdf argon2id --pbkdf-memory 65536 --pbkdf-force-iterations 4 --pbkdf-parallel 1";
  const add = `cryptsetup luksAddKey --batch-mode ${derivation} --key-file - --keyfile-size ${old.length} ` +
    `--new-keyfile-size ${next.length} ${device} -`;
  await ns.runOnNode(
    `lvcreate -qq --yes --zero y --wipesignatures y --size 16m --name ${name} ${tags.join(" ")} ${group} && ` +
      `dd if=${device} of=${backup} bs=1M count=16 iflag=direct oflag=direct conv=fsync,nocreat && ` +
      `printf %s '${old}${next}' | ${add}`,
    node,
  );
}
