/**
 * A tree of files as cgroup v2 has them, with kubelet's cgroups for pods. What is written to io.max stays as it was written.
 *
 * @module
 */

import { dirname, join } from "@std/path";

/** The paths of pods' cgroups for each cgroup driver of kubelet, below the root. */
export const KUBELET_CGROUP_PATHS: Readonly<Record<string, (uid: string) => string>> = {
  "cgroupfs, guaranteed": (uid) => `kubepods/pod${uid}`,
  "cgroupfs, burstable": (uid) => `kubepods/burstable/pod${uid}`,
  "cgroupfs, besteffort": (uid) => `kubepods/besteffort/pod${uid}`,
  "cgroupfs, with a root of kubelet's": (uid) => `kubelet/kubepods/burstable/pod${uid}`,
  "systemd, guaranteed": (uid) => `kubepods.slice/kubepods-pod${escapeUid(uid)}.slice`,
  "systemd, burstable": (uid) =>
    `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod${escapeUid(uid)}.slice`,
  "systemd, besteffort": (uid) =>
    `kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod${escapeUid(uid)}.slice`,
  "systemd, with a root of kubelet's": (uid) =>
    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/" +
    `kubelet-kubepods-burstable-pod${escapeUid(uid)}.slice`,
};

function escapeUid(uid: string): string {
  return uid.replaceAll("-", "_");
}

/** A hierarchy. */
export class FakeCgroups {
  readonly root: string;

  constructor(root: string) {
    this.root = root;
  }

  /** Makes the root, with the controllers. */
  mount(controllers = "cpuset cpu io memory pids"): void {
    Deno.mkdirSync(join(this.root, "system.slice/containerd.service"), { recursive: true });
    Deno.writeTextFileSync(join(this.root, "cgroup.controllers"), `${controllers}\n`);
  }

  /** Makes the cgroup of a pod, by the path below the root; answers the path of its io.max. */
  addPod(path: string, { io = true } = {}): string {
    const file = join(this.root, path, "io.max");
    Deno.mkdirSync(dirname(file), { recursive: true });
    if (io) Deno.writeTextFileSync(file, "");
    return file;
  }
}
