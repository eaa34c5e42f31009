/**
 * Disks and groups of a test's own, which are files on the node.
 *
 * @module
 */

import { type TestNamespace, warn } from "./test_namespace.ts";

/** Adds a disk to a group, until it is disposed of. */
export async function addPv(ns: TestNamespace, group: string, mib: number): Promise<AsyncDisposable> {
  const { device, detach } = await createLoopDevice(ns, `${ns.namespace}-more`, mib);
  await ns.runOnNode(`pvcreate -qq ${device} && vgextend -qq ${group} ${device}`);
  return {
    [Symbol.asyncDispose]: async () => await detach(`vgreduce -qq ${group} ${device} && pvremove -qq ${device}`),
  };
}

/** Creates a group that no other test uses, until it is disposed of. @param mib its free space */
export async function createTestGroup(
  ns: TestNamespace,
  mib: number,
): Promise<AsyncDisposable & { readonly name: string; readonly mib: number }> {
  const name = ns.namespace;
  const { device, detach } = await createLoopDevice(ns, name, mib);
  await ns.runOnNode(`vgcreate -qq ${name} ${device}`);
  const free = await ns.runOnNode(`vgs --noheadings --units m --nosuffix -o vg_free ${name}`);
  return {
    name,
    mib: Number(free),
    [Symbol.asyncDispose]: async () => await detach(`vgremove -qq -f ${name} && pvremove -qq ${device}`),
  };
}

/** Removes the thin pool that the driver made in a group, as soon as it has erased and removed all that was in it. */
export async function removePool(ns: TestNamespace, group: string): Promise<void> {
  const pool = `${group}_thinpool`;
  const otherLvs = `lvs --noheadings -o lv_name ${group} | grep -qvw ${pool}`;
  await ns.runOnNode(`while ${otherLvs}; do sleep .5; done; lvremove --yes ${group}/${pool}`);
}

/** Creates a disk that is a file. `away` removes it after a command that frees it. */
async function createLoopDevice(ns: TestNamespace, name: string, mib: number) {
  const file = `/var/tmp/${name}.img`;
  await ns.runOnNode("modprobe loop");
  const device = (await ns.runOnNode(`truncate -s ${mib}M ${file} && losetup --find --show ${file}`)).trim();
  const detach = async (releaseCommand: string) => {
    await ns.runOnNode(`${releaseCommand}; status=$?; losetup -d ${device}; rm -f ${file}; exit $status`).catch(warn);
  };
  return { device, detach };
}
