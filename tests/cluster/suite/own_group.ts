/**
 * Disks and groups of a test's own, which are files on the node.
 *
 * @module
 */

import { type Scene, warn } from "./scene.ts";

/** A disk more for a group, for as long as it is held. */
export async function moreDisk(scene: Scene, group: string, mib: number): Promise<AsyncDisposable> {
  const { device, away } = await loopDisk(scene, `${scene.namespace}-more`, mib);
  await scene.onNode(`pvcreate -qq ${device} && vgextend -qq ${group} ${device}`);
  return {
    [Symbol.asyncDispose]: async () => await away(`vgreduce -qq ${group} ${device} && pvremove -qq ${device}`),
  };
}

/** A group that no other test uses, for as long as it is held; with `mib`, how much is free in it. */
export async function ownGroup(
  scene: Scene,
  mib: number,
): Promise<AsyncDisposable & { readonly name: string; readonly mib: number }> {
  const name = scene.namespace;
  const { device, away } = await loopDisk(scene, name, mib);
  await scene.onNode(`vgcreate -qq ${name} ${device}`);
  const free = await scene.onNode(`vgs --noheadings --units m --nosuffix -o vg_free ${name}`);
  return {
    name,
    mib: Number(free),
    [Symbol.asyncDispose]: async () => await away(`vgremove -qq -f ${name} && pvremove -qq ${device}`),
  };
}

/** Removes the thin pool that the driver made in a group, as soon as it has erased and removed all that was in it. */
export async function removePool(scene: Scene, group: string): Promise<void> {
  const pool = `${group}_thinpool`;
  const others = `lvs --noheadings -o lv_name ${group} | grep -qvw ${pool}`;
  await scene.onNode(`while ${others}; do sleep .5; done; lvremove --yes ${group}/${pool}`);
}

/** A disk that is a file; `away` removes it after a command that frees it. */
async function loopDisk(scene: Scene, name: string, mib: number) {
  const file = `/var/tmp/${name}.img`;
  await scene.onNode("modprobe loop");
  const device = (await scene.onNode(`truncate -s ${mib}M ${file} && losetup --find --show ${file}`)).trim();
  const away = async (freeing: string) => {
    await scene.onNode(`${freeing}; status=$?; losetup -d ${device}; rm -f ${file}; exit $status`).catch(warn);
  };
  return { device, away };
}
