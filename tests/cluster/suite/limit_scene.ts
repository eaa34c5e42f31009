/**
 * What suites of limits have in common: classes of attributes, and how fast a pod's IO is.
 *
 * @module
 */

import { assert } from "@std/assert";
import type { LvmVolume } from "../../../k8s/api/lvm_objects.ts";
import type { Scene } from "./scene.ts";
import { DRIVER } from "./scene_objects.ts";

/** By how much a rate may miss its limit. */
const TOLERANCE = 0.2;

/** A stage for lives with limits. */
export interface LimitScene {
  readonly scene: Scene;
  /** Makes a VolumeAttributesClass of the driver; answers its full name. */
  attributesClass(name: string, parameters: Readonly<Record<string, string>>): Promise<string>;
  /** Gives a claim another one, and waits until claim and PersistentVolume say that it has it. */
  change(claim: string, className: string): Promise<void>;
  /** Waits until the agent says that pods are held to these rates, as its condition words them. */
  limited(claim: string, rates: RegExp): Promise<void>;
  /** Makes sure that a pod's IO is as fast as its limit: some rate a second, of the amount that the shell line moves. */
  paced(pod: string, command: string, expected: { readonly amount: number; readonly rate: number }): Promise<void>;
  /** How many seconds a shell line takes in a pod. */
  seconds(pod: string, command: string): Promise<number>;
}

/** A stage on a scene. */
export function limitScene(scene: Scene): LimitScene {
  const seconds = async (pod: string, command: string) => {
    const now = "cut -d' ' -f1 /proc/uptime";
    const [before, after] = (await scene.exec(pod, `${now}; ${command} 2>/dev/null || exit 1; ${now}`)).split("\n");
    return Number(after) - Number(before);
  };
  return {
    scene,
    seconds,
    attributesClass: async (name, parameters) => {
      const full = `${scene.namespace}-${name}`;
      await scene.apply({
        apiVersion: "storage.k8s.io/v1",
        kind: "VolumeAttributesClass",
        metadata: { name: full },
        driverName: DRIVER,
        parameters,
      });
      return full;
    },
    change: async (claim, className) => {
      await scene.patch("PersistentVolumeClaim", claim, { spec: { volumeAttributesClassName: className } });
      await scene.wait("PersistentVolumeClaim", claim, (now) => {
        const { currentVolumeAttributesClassName, modifyVolumeStatus } = now?.status ?? {};
        return currentVolumeAttributesClassName === className && modifyVolumeStatus === undefined;
      }, `has ${className}`);
      const { metadata: { name } } = await scene.volumeOf(claim);
      const isSo = (pv?: { spec?: { volumeAttributesClassName?: string } }) =>
        pv?.spec?.volumeAttributesClassName === className;
      await scene.wait("PersistentVolume", name, isSo, `has ${className}`);
    },
    limited: async (claim, rates) => {
      const id = (await scene.volumeOf(claim)).spec!.csi!.volumeHandle;
      await scene.wait("LVMVolume", id, (volume) => isLimited(volume, rates), `is limited to ${rates}`);
    },
    paced: async (pod, command, { amount, rate }) => {
      const took = await seconds(pod, command);
      const actual = amount / took;
      const near = Math.abs(actual - rate) <= TOLERANCE * rate;
      assert(near, `${command}: ${amount} in ${took} s are ${actual.toFixed(1)} a second; the limit is ${rate}`);
    },
  };
}

function isLimited(volume: LvmVolume | undefined, rates: RegExp): boolean {
  const condition = volume?.status?.conditions?.find(({ type }) => type === "IOLimited");
  return condition?.status === "True" && rates.test(condition.message);
}
