import { assertEquals, assertThrows } from "@std/assert";
import { UsageError } from "./command_line.ts";
import { cgroupRoot, kubeletPaths } from "./paths.ts";
import { StorageError } from "../base/error.ts";

Deno.test("kubeletPaths(): sockets lie below kubelet's directory, under the driver's name", () => {
  assertEquals(kubeletPaths({ "kubelet-dir": "/var/lib/kubelet", "driver-name": "lvm.denolith.dev" }), {
    kubeletDir: "/var/lib/kubelet",
    socket: "/var/lib/kubelet/plugins/lvm.denolith.dev/csi.sock",
    registrationSocket: "/var/lib/kubelet/plugins_registry/lvm.denolith.dev-reg.sock",
  });
  const { kubeletDir, socket } = kubeletPaths({ "kubelet-dir": "/data/kubelet/", "driver-name": "a.example" });
  assertEquals([kubeletDir, socket], ["/data/kubelet", "/data/kubelet/plugins/a.example/csi.sock"]);
});

Deno.test("kubeletPaths(): refuses a directory that cannot be kubelet's, or whose path is too long for a socket", () => {
  const paths = (root: string) => () => kubeletPaths({ "kubelet-dir": root, "driver-name": "lvm.denolith.dev" });
  assertThrows(paths("/a,/b"), StorageError, "one directory");
  assertThrows(paths("kubelet"), StorageError, "not an absolute path");
  assertThrows(paths("/"), StorageError, "root directory");
  assertThrows(paths("/var/../lib"), StorageError, `has "." or ".."`);
  assertThrows(paths(`/${"k".repeat(80)}`), StorageError, "longer than");
});

Deno.test("cgroupRoot(): a path that the driver can be permitted, or none", () => {
  const root = (path: string) => cgroupRoot({ "cgroup-root": path });
  assertEquals(cgroupRoot({}), undefined);
  assertEquals([root("/run/denolith/cgroup"), root("/system/cgroup/")], ["/run/denolith/cgroup", "/system/cgroup"]);
  for (const path of ["cgroup", "/", "/sys/fs/cgroup", "/sys", "/proc/1", "/dev/cgroup", "/run/../sys/fs/cgroup"]) {
    assertThrows(() => root(path), UsageError, "--cgroup-root");
  }
});
