/**
 * Physical volumes on devices over logical volumes, with real LVM and loop devices as kubelet makes them: `deno test` runs this in
 * the guest, as one bundle.
 *
 * @module
 */

import { HostExec } from "../../lvm/exec.ts";
import { stackedDevicesContract } from "../contract/stacked_devices.ts";
import { run } from "../demo/command.ts";
import { realHost } from "./real_host.ts";

const host = await realHost("test");
const [firstDisk] = Deno.env.get("DATA_DISKS")!.split(" ") as [string];

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
        return "/dev/mapper/other";
      },
      addGroup: async (name, path) => {
        await run("write a group", "lvm", ["vgcreate", "--yes", "--devices", path, name, path]);
      },
      copyPv: async (_, path) => {
        await run("copy the header", "dd", [`if=${firstDisk}`, `of=${path}`, "bs=1M", "count=2", "conv=fsync"]);
      },
      [Symbol.asyncDispose]: async () => {
        await made.disposeAsync();
        await machine[Symbol.asyncDispose]();
        await Deno.remove(folder, { recursive: true });
      },
    };
  },
});
