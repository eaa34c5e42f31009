import { assertEquals } from "@std/assert";
import { addForeignLv } from "../../tests/fake/machine/foreign_lv.ts";
import { type FakeLv, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { Lvm } from "../client/client.ts";
import { readSurvey } from "./survey.ts";

/** Mounts the filesystem of an LV. */
function mount(machine: FakeMachine, lv: FakeLv, target: string): void {
  const deviceNumber = `253:${lv.minor}`;
  machine.mounts.push({ target, source: "x", fsType: "ext4", root: "/", readOnly: false, deviceNumber, lv });
}

const CSI = "/var/lib/kubelet/plugins/kubernetes.io/csi";

/** What is done with the LV `root` of a group, and what is then said of the group. */
const USES: Readonly<Record<string, readonly [use: (machine: FakeMachine, lv: FakeLv) => unknown, expected?: string]>> =
  {
    "nothing": [() => {}],
    "a program has it open": [(machine, lv) => machine.openLvs.push(lv)],
    "it is the root filesystem": [(machine, lv) => mount(machine, lv, "/"), "root (mounted)"],
    "it has a directory of the host in a container": [
      (machine, lv) => mount(machine, lv, "/etc/lvm"),
      "root (mounted)",
    ],
    "it is kubelet's directory": [(machine, lv) => mount(machine, lv, "/var/lib/kubelet"), "root (mounted)"],
    "it is swap space": [(machine, lv) => machine.host.swapLvs.add(lv), "root (swap)"],
    "another driver mounts it for a pod": [(machine, lv) => mount(machine, lv, `${CSI}/x/1/globalmount`)],
    "another driver mounts it below another kubelet's directory": [
      (machine, lv) => mount(machine, lv, "/var/lib/k0s/kubelet/pods/1/volumes/kubernetes.io~csi/pvc-1/mount"),
    ],
    "a driver of ours has it, and an administrator mounted it": [(machine, lv) => {
      lv.tags.add("denolith=other.driver");
      mount(machine, lv, "/mnt");
    }],
    "it is mounted for a pod and elsewhere": [(machine, lv) => {
      mount(machine, lv, `${CSI}/x/1/globalmount`);
      mount(machine, lv, "/srv");
    }, "root (mounted)"],
  };

for (const [name, [use, expected]] of Object.entries(USES)) {
  Deno.test(`reports say what the machine itself uses of a group: ${name}`, async () => {
    const machine = new FakeMachine();
    machine.addGroup("system", 1n << 30n);
    machine.addGroup("data", 1n << 30n);
    const root = await addForeignLv(machine, { group: "system", name: "root", bytes: 64n << 20n });
    use(machine, root);
    const reports = [await new Lvm(machine).report(), (await readSurvey(machine)).groups];
    for (const report of reports) {
      assertEquals(report.map(({ name, hostUse }) => [name, hostUse]), [["system", expected], ["data", undefined]]);
    }
  });
}

Deno.test("what the machine uses is known of encrypted LVs, and a report does not fail without it", async () => {
  const machine = new FakeMachine();
  machine.addGroup("system", 1n << 30n);
  const lv = await addForeignLv(machine, { group: "system", name: "crypt", bytes: 64n << 20n });
  lv.mapping = { ...structuredClone(lv), name: "luks-root", uuid: "CRYPT-LUKS2-1-luks-root", minor: 9 };
  mount(machine, lv.mapping, "/");
  const hostUse = async () => (await new Lvm(machine).report())[0]!.hostUse;
  assertEquals(await hostUse(), "crypt (mounted)");
  machine.host.missing.add("lsblk");
  assertEquals(await hostUse(), undefined);
});
