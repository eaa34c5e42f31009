/** The tests of disks over the fake machine. */

import { diskAt, spareDisk } from "../fake/machine/disks.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { registerDiskTests } from "./disks_suite.ts";

const machine = new FakeMachine();
const NAMES = ["ata-SPARE_b", "ata-SPARE_c"] as const;
const disk = (name: string) => diskAt(machine, `/dev/disk/by-id/${name}`)!;

registerDiskTests({
  name: "fake",
  disks: NAMES,
  exec: machine,
  kubeletDirectory: "/var/lib/kubelet",
  makeFilesystem: (name) => Promise.resolve(void disk(name).signatures.push("ext4")),
  openExclusively: (name) => {
    disk(name).isOpen = true;
    return Promise.resolve({ [Symbol.asyncDispose]: () => Promise.resolve(void (disk(name).isOpen = false)) });
  },
  reset: () => {
    machine.groups.length = 0;
    machine.host.unusedPvs.length = 0;
    machine.host.disks.splice(0, Infinity, spareDisk("b"), spareDisk("c"));
    return Promise.resolve();
  },
});
