/**
 * Physical volumes on devices over logical volumes, with real LVM and loop devices as kubelet makes them: `deno test` runs this in
 * the guest, as one bundle.
 *
 * @module
 */

import { HostExec } from "../../lvm/exec.ts";
import { stackedDevicesContract } from "../contract/stacked_devices_suite.ts";
import { run } from "../demo/command.ts";
import { realHost } from "./helpers/real_host.ts";

const host = await realHost("test");
const [firstDisk] = Deno.env.get("DATA_DISKS")!.split(" ") as [string];

/** Waits until udev has made the nodes, and read what was written. */
async function settle(): Promise<void> {
  await run("wait for udev", "udevadm", ["settle"]);
}

stackedDevicesContract({
  ...host,
  setUp: async () => {
    const machine = await host.setUp();
    const folder = await Deno.makeTempDir({ prefix: "denolith-stacked-" });
    const made = new AsyncDisposableStack();
    const removeDevices = async () => {
      while (undo.length > 0) await undo.pop()!();
    };
    const undo: (() => Promise<unknown>)[] = [];
    made.defer(removeDevices);
    const attach = async (path: string) => {
      const loop = (await run("attach a loop device", "losetup", ["--find", "--show", path])).trim();
      undo.push(() => run("detach it", "losetup", ["--detach", loop]));
      return loop;
    };
    return {
      ...machine,
      hostExec: new HostExec(),
      removeDevices,
      mountAsHost: async (group) => {
        const device = `/dev/mapper/${group.replaceAll("-", "--")}-root`;
        await run("make an LV", "lvm", ["lvcreate", "-qq", "--yes", "--size", "32m", "--name", "root", group]);
        await settle();
        await run("make a filesystem", "mke2fs", ["-q", "-t", "ext4", device]);
        await run("mount it", "mount", ["--mkdir", device, `${folder}/srv`]);
        return {
          [Symbol.asyncDispose]: async () => {
            await run("unmount it", "umount", [`${folder}/srv`]);
            await run("remove it", "lvm", ["lvremove", "-qq", "--yes", `${group}/root`]);
          },
        };
      },
      addFile: async () => {
        await Deno.writeFile(`${folder}/disk.img`, new Uint8Array(1));
        await Deno.truncate(`${folder}/disk.img`, 64 << 20);
        return `${folder}/disk.img`;
      },
      addLoop: async (path) => {
        if (!path.startsWith("/dev/")) return await attach(path);
        const node = `${folder}/kubernetes.io/csi/volumeDevices/pvc-1/dev/${crypto.randomUUID()}`;
        await Deno.mkdir(node.replace(/[^/]+$/, ""), { recursive: true });
        await Deno.writeFile(node, new Uint8Array());
        await run("bind the device", "mount", ["--bind", path, node]);
        undo.push(() => run("unbind it", "umount", [node]));
        return await attach(node);
      },
      addMapping: async (path) => {
        const sectors = (await run("read the size", "blockdev", ["--getsz", path])).trim();
        const table = `0 ${sectors} linear ${path} 0`;
        await run("make a mapping", "dmsetup", ["create", "--noudevsync", "other", "--table", table]);
        undo.push(() => run("remove it", "dmsetup", ["remove", "--noudevsync", "--retry", "other"]));
        await settle();
        return "/dev/mapper/other";
      },
      addGroup: async (name, path) => {
        // LVM refuses the name of a group that has nodes in the directory of devices
        const config = ["--config", `devices/dir="${folder}"`];
        await run("write a group", "lvm", ["vgcreate", "--yes", ...config, "--devices", path, name, path]);
        await settle();
      },
      copyPv: async (_, path) => {
        await run("copy the header", "dd", [`if=${firstDisk}`, `of=${path}`, "bs=1M", "count=2", "conv=fsync"]);
        await settle();
      },
      [Symbol.asyncDispose]: async () => {
        await made.disposeAsync();
        await machine[Symbol.asyncDispose]();
        await Deno.remove(folder, { recursive: true });
      },
    };
  },
});
