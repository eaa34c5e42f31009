/**
 * Helpers for the suites of IO limits: VolumeAttributesClasses, and the speed of a pod's IO.
 *
 * @module
 */

import { assert } from "@std/assert";
import type { LvmVolume } from "../../../../k8s/api/lvm_objects.ts";
import { Cluster } from "../../../rig/cluster.ts";
import { DRIVER } from "./objects.ts";
import { CLUSTER_VARIABLE, type TestNamespace } from "./test_namespace.ts";

/** Reports whether the cluster serves VolumeAttributesClasses as `storage.k8s.io/v1`: Kubernetes 1.34 and later do. */
async function servesAttributesClasses(): Promise<boolean> {
  const { controlPlane } = await Cluster.open(Deno.env.get(CLUSTER_VARIABLE)!);
  const served = (await controlPlane.kubectl(["get", "--raw", "/apis/storage.k8s.io/v1"]))
    .includes('"volumeattributesclasses"');
  if (!served) console.error("tests with VolumeAttributesClasses are NOT RUN: this release of Kubernetes has none");
  return served;
}

/** The options of a test with VolumeAttributesClasses: it is ignored where there are none. */
export const NEEDS_ATTRIBUTES_CLASSES: { readonly ignore: boolean } = { ignore: !await servesAttributesClasses() };

/** The bounds of a rate, as parts of its limit. The start of a program takes some of the measured time. */
const RATE_BOUNDS = { slowest: 0.6, fastest: 1.2 };

/** Helpers for tests with IO limits. */
export interface IoLimitHelpers {
  readonly ns: TestNamespace;
  /** Makes a VolumeAttributesClass of the driver; answers its full name. */
  createAttributesClass(name: string, parameters: Readonly<Record<string, string>>): Promise<string>;
  /** Gives a claim another one, and waits until claim and PersistentVolume say that it has it. */
  changeAttributesClass(claim: string, className: string): Promise<void>;
  /** Waits until the agent's condition says that these rates are applied to pods. */
  waitForLimits(claim: string, rates: RegExp): Promise<void>;
  /** Makes sure that a pod's IO is as fast as its limit: some rate a second, of the amount that the shell line moves. */
  assertRate(pod: string, command: string, expected: { readonly amount: number; readonly rate: number }): Promise<void>;
  /** Measures how many seconds a shell line takes in a pod. */
  measureSeconds(pod: string, command: string): Promise<number>;
}

/** Creates the helpers in a test namespace. */
export function ioLimitHelpers(ns: TestNamespace): IoLimitHelpers {
  const measureSeconds = async (pod: string, command: string) => {
    const uptimeCommand = "cut -d' ' -f1 /proc/uptime";
    const [before, after] = (await ns.exec(pod, `${uptimeCommand}; ${command} 2>/dev/null || exit 1; ${uptimeCommand}`))
      .split("\n");
    return Number(after) - Number(before);
  };
  return {
    ns,
    measureSeconds,
    createAttributesClass: async (name, parameters) => {
      const full = `${ns.namespace}-${name}`;
      await ns.apply({
        apiVersion: "storage.k8s.io/v1",
        kind: "VolumeAttributesClass",
        metadata: { name: full },
        driverName: DRIVER,
        parameters,
      });
      return full;
    },
    changeAttributesClass: async (claim, className) => {
      await ns.patch("PersistentVolumeClaim", claim, { spec: { volumeAttributesClassName: className } });
      await ns.waitFor("PersistentVolumeClaim", claim, (now) => {
        const { currentVolumeAttributesClassName, modifyVolumeStatus } = now?.status ?? {};
        return currentVolumeAttributesClassName === className && modifyVolumeStatus === undefined;
      }, `has ${className}`);
      const { metadata: { name } } = await ns.volumeOf(claim);
      const hasClass = (pv?: { spec?: { volumeAttributesClassName?: string } }) =>
        pv?.spec?.volumeAttributesClassName === className;
      await ns.waitFor("PersistentVolume", name, hasClass, `has ${className}`);
    },
    waitForLimits: async (claim, rates) => {
      const id = (await ns.volumeOf(claim)).spec!.csi!.volumeHandle;
      await ns.waitFor("LVMVolume", id, (volume) => isLimited(volume, rates), `is limited to ${rates}`);
    },
    assertRate: async (pod, command, { amount, rate }) => {
      const seconds = await measureSeconds(pod, command);
      const actual = amount / seconds;
      assert(
        actual >= RATE_BOUNDS.slowest * rate && actual <= RATE_BOUNDS.fastest * rate,
        `${command}: ${amount} in ${seconds} s are ${actual.toFixed(1)} a second; the limit is ${rate}`,
      );
    },
  };
}

function isLimited(volume: LvmVolume | undefined, rates: RegExp): boolean {
  const condition = volume?.status?.conditions?.find(({ type }) => type === "IOLimitsApplied");
  return condition?.status === "True" && rates.test(condition.message);
}
