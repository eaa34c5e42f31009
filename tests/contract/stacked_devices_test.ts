/** The tests of devices over logical volumes over the fake machine. */

import { FilteredExec } from "../../lvm/host/filtered_exec.ts";
import { addForeignLv } from "../fake/machine/foreign_lv.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";
import { fakeHost } from "./helpers/fake_host.ts";
import { stackedDevicesContract } from "./stacked_devices_suite.ts";

stackedDevicesContract({
  ...fakeHost,
  setUp: async () => {
    const host = await fakeHost.setUp();
    const machine = host.exec as FakeMachine;
    const { loops, mappings } = machine.host;
    return {
      ...host,
      exec: new FilteredExec(machine),
      hostExec: machine,
      addFile: () => Promise.resolve("/var/tmp/disk.img"),
      addLoop: (path) => {
        const lv = machine.lvAt(path);
        const file = lv === undefined
          ? path
          : "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/0d1f";
        loops.push({ path: `/dev/loop${loops.length}`, file, ...(lv && { lv }) });
        return Promise.resolve(loops.at(-1)!.path);
      },
      addMapping: (path) => {
        mappings.set(path, "/dev/mapper/other");
        return Promise.resolve("/dev/mapper/other");
      },
      addGroup: (name, path) => {
        machine.addGroup(name, 64n << 20n).pvs[0]!.path = path;
        return Promise.resolve();
      },
      mountAsHost: async (group) => {
        const lv = await addForeignLv(machine, { group, name: "root", bytes: 32n << 20n });
        const deviceNumber = `253:${lv.minor}`;
        machine.mounts.push({
          target: "/srv",
          source: "x",
          fsType: "ext4",
          root: "/",
          readOnly: false,
          deviceNumber,
          lv,
        });
        return {
          [Symbol.asyncDispose]: () => {
            machine.mounts.pop();
            for (const group of machine.groups) group.lvs = group.lvs.filter((other) => other !== lv);
            return Promise.resolve();
          },
        };
      },
      removeDevices: () => {
        const { groups } = machine;
        groups.splice(0, Infinity, ...groups.filter(({ pvs }) => pvs[0]!.path.startsWith("/dev/vd")));
        loops.length = 0;
        mappings.clear();
        return Promise.resolve();
      },
      copyPv: (name, path) => {
        const [{ uuid, pvs: [pv], tags }] = machine.groups.filter((group) => group.name === name) as [
          FakeMachine["groups"][0],
        ];
        const copy = machine.addGroup(name, 1n << 30n);
        Object.assign(copy, { uuid, tags: new Set(tags), pvs: [{ ...pv, path }] });
        return Promise.resolve();
      },
    };
  },
});
