/**
 * The cgroups of pods, and the IO limits of devices in them (cgroup v2: Linux' admin-guide/cgroup-v2, "io.max").
 *
 * The hierarchy is mounted at a path for the driver: under scoped permissions Deno refuses all of /sys (docs/adr/0001).
 *
 * @module
 */

import { type ErrorKind, messageOf } from "../../base/error.ts";
import { basename, join } from "@std/path";
import { IO_LIMITS, type IoLimitName, type IoRates } from "../settings/io_limits.ts";

/** The reason why the limits of a volume are not applied, other than an error. */
export type LimitsRefusal =
  | "NoCgroup2"
  | "NoIoController"
  | "NoCgroupRoot"
  | "IoControllerNotEnabled"
  | "NoPodCgroup"
  | "NotAPod"
  | "Refused";

/** The reason why the limits of a volume are applied or not. */
export type LimitsReason = LimitsRefusal | "Applied" | ErrorKind;

/** The result of limiting a device for a pod. */
export type LimitResult =
  | { readonly state: "applied" }
  /** The pod has no cgroup yet, or not any more. */
  | { readonly state: "waiting" }
  /** This machine cannot apply limits: the reason in one word, and a message. */
  | { readonly state: "refused"; readonly reason: LimitsRefusal; readonly message: string };

/** The keys of the limits in io.max. */
const IO_MAX_KEYS = {
  readIops: "riops",
  writeIops: "wiops",
  readBps: "rbps",
  writeBps: "wbps",
} as const satisfies Record<
  IoLimitName,
  string
>;

/**
 * kubelet's QoS classes with a cgroup of their own. Guaranteed pods are directly below kubelet's cgroup (Kubernetes,
 * pkg/kubelet/cm).
 */
const QOS_CLASSES = ["burstable", "besteffort"];

/** The cgroups of pods in a hierarchy. */
export class PodCgroups {
  /** The path at which the hierarchy is mounted. */
  readonly root: string;
  /** kubelet's cgroups, by path; searched again when a pod is in none of them. */
  #kubepods: readonly string[] = [];

  /** Creates an object for the hierarchy at a path. */
  constructor(root: string) {
    this.root = root;
  }

  /**
   * Limits a device for all containers of a pod together. Limits without a rate stay unchanged, and equal ones are not
   * written again. It never fails: the result contains the problem.
   *
   * @param pod the uid of the pod
   * @param device the device number, `major:minor`
   */
  async limit(pod: string, device: string, rates: IoRates): Promise<LimitResult> {
    const unavailable = await this.#unavailability();
    if (unavailable !== undefined) return unavailable;
    const folder = await this.#findPodCgroup(pod);
    if (folder === undefined) return { state: "waiting" };
    const file = join(folder, "io.max");
    const before = await readText(file);
    if (before === undefined) {
      if (!await isFolder(folder)) return { state: "waiting" };
      return refusal(
        "IoControllerNotEnabled",
        `${file}: it does not exist; the io controller is not enabled for the cgroups of pods. Enable it in the ` +
          `cgroup.subtree_control of the cgroups above (kubelet and systemd do, if the kernel has the controller)`,
      );
    }
    if (includesRates(parseRates(before, device), rates)) return { state: "applied" };
    const line = ioMaxLine(device, rates);
    try {
      await Deno.writeTextFile(file, `${line}\n`, { create: false });
    } catch (error) {
      if (!await isFolder(folder)) return { state: "waiting" };
      return refusal("Refused", `writing "${line}" to ${file}: ${messageOf(error)}`);
    }
    return { state: "applied" };
  }

  /** Returns why nothing can be limited on this machine; `undefined` when it can. */
  async #unavailability(): Promise<LimitResult | undefined> {
    const controllers = await readText(join(this.root, "cgroup.controllers"));
    if (controllers === undefined) {
      return refusal(
        "NoCgroup2",
        `${this.root}: no cgroup v2 is mounted there; IO limits need the unified hierarchy (see --cgroup-root)`,
      );
    }
    if (controllers.split(/\s+/).includes("io")) return undefined;
    return refusal(
      "NoIoController",
      `${this.root}/cgroup.controllers: no io controller (it has ${
        controllers.trim() || "none"
      }); a hierarchy of cgroup v1 ` +
        `has the controller, or the kernel was built without it`,
    );
  }

  /** Returns the directory of a pod's cgroup, or `undefined` when there is none. */
  async #findPodCgroup(pod: string): Promise<string | undefined> {
    const known = await firstFolder(this.#kubepods.flatMap((folder) => podCgroupPaths(folder, pod)));
    if (known !== undefined) return known;
    this.#kubepods = await findKubepods(this.root);
    return await firstFolder(this.#kubepods.flatMap((folder) => podCgroupPaths(folder, pod)));
  }
}

/**
 * Returns the paths at which a pod's cgroup can be below kubelet's cgroup: it has the pod's uid in its name, and is in
 * the directory of the QoS class if that has one. With systemd, each name contains the names of all parents, and `-`
 * separates levels.
 */
function podCgroupPaths(kubepods: string, pod: string): string[] {
  const stem = /^(.*)\.slice$/.exec(basename(kubepods))?.[1];
  if (stem === undefined) return ["", ...QOS_CLASSES].map((one) => join(kubepods, one, `pod${pod}`));
  const uid = pod.replaceAll("-", "_");
  return [
    join(kubepods, `${stem}-pod${uid}.slice`),
    ...QOS_CLASSES.map((one) => join(kubepods, `${stem}-${one}.slice`, `${stem}-${one}-pod${uid}.slice`)),
  ];
}

/** Finds kubelet's cgroups for pods: at the top, or one level below if kubelet's `cgroupRoot` is set. */
async function findKubepods(root: string): Promise<string[]> {
  const top = await foldersIn(root);
  const found = top.filter(isKubepods);
  if (found.length > 0) return found;
  return (await Promise.all(top.map((folder) => foldersIn(folder)))).flat().filter(isKubepods);
}

function isKubepods(folder: string): boolean {
  return /^(?:kubepods|(?:.+-)?kubepods\.slice)$/.test(basename(folder));
}

/** Parses the limits of a device in the text of an io.max. */
export function parseRates(text: string, device: string): IoRates {
  const line = text.split("\n").find((line) => line.startsWith(`${device} `)) ?? "";
  const given = new Map(line.split(" ").slice(1).map((pair) => pair.split("=") as [string, string]));
  return Object.fromEntries(IO_LIMITS.map((name) => {
    const value = given.get(IO_MAX_KEYS[name]) ?? "max";
    return [name, /^\d+$/.test(value) ? BigInt(value) : "max"];
  }));
}

function includesRates(now: IoRates, wanted: IoRates): boolean {
  return IO_LIMITS.every((name) => wanted[name] === undefined || wanted[name] === now[name]);
}

/** Formats a line for io.max, which leaves other limits of the device unchanged. */
function ioMaxLine(device: string, rates: IoRates): string {
  const pairs = IO_LIMITS.flatMap((name) => rates[name] === undefined ? [] : [`${IO_MAX_KEYS[name]}=${rates[name]}`]);
  return [device, ...pairs].join(" ");
}

function refusal(reason: LimitsRefusal, message: string): LimitResult {
  return { state: "refused", reason, message };
}

async function readText(path: string): Promise<string | undefined> {
  return await Deno.readTextFile(path).catch(() => undefined);
}

async function isFolder(path: string): Promise<boolean> {
  return await Deno.lstat(path).then((info) => info.isDirectory, () => false);
}

async function firstFolder(paths: readonly string[]): Promise<string | undefined> {
  for (const path of paths) if (await isFolder(path)) return path;
}

async function foldersIn(path: string): Promise<string[]> {
  try {
    const entries = await Array.fromAsync(Deno.readDir(path));
    return entries.filter(({ isDirectory }) => isDirectory).map(({ name }) => join(path, name));
  } catch {
    return []; // a cgroup can be removed while it is read
  }
}
