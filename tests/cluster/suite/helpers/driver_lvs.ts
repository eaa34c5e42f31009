/**
 * Reads the driver's logical volumes on a node.
 *
 * @module
 */

import type { Node } from "../../../rig/node.ts";
import { DRIVER } from "./objects.ts";

/** A logical volume of the driver. */
export interface DriverLv {
  /** The name of its node. */
  readonly node: string;
  readonly group: string;
  readonly name: string;
  readonly uuid: string;
  /** In bytes. */
  readonly size: number;
  readonly tags: readonly string[];
  /** The id of its volume; undefined when the volume was deleted and is only to be erased. */
  readonly volume: string | undefined;
  /** The path of its device. */
  readonly device: string;
}

/** Returns the logical volumes of the driver on a node. @throws {Error} when LVM does not answer */
export async function listDriverLvs(node: Node): Promise<DriverLv[]> {
  const fields = "vg_name,lv_name,lv_uuid,lv_size,lv_tags,lv_dm_path";
  const command = `lvs --reportformat json --units b --nosuffix -o ${fields} @denolith=${DRIVER}`;
  const { code, stdout, stderr } = await node.exec(command);
  if (code !== 0) throw new Error(`list LVs of ${node.name}: exit status ${code}: ${stderr.trim()}`);
  const { report } = JSON.parse(stdout) as { report: [{ lv: Record<string, string>[] }] };
  return report[0].lv.map((lv) => {
    const tags = (lv.lv_tags ?? "").split(",");
    const volume = tags.find((tag) => tag.startsWith("denolith.volume="));
    return {
      node: node.name,
      group: lv.vg_name ?? "",
      name: lv.lv_name ?? "",
      uuid: lv.lv_uuid ?? "",
      size: Number(lv.lv_size),
      tags,
      volume: volume?.slice("denolith.volume=".length),
      device: lv.lv_dm_path ?? "",
    };
  });
}
