/**
 * The fake machine as a host of contract tests.
 *
 * @module
 */

import { FakeCgroups, KUBELET_CGROUP_PATHS } from "../../fake/machine/cgroups.ts";
import { type FakeLv, FakeMachine, type FakePool } from "../../fake/machine/machine.ts";
import { DEBIAN_13 } from "../../fake/machine/machine_host.ts";
import { withOddRows } from "./odd_reports.ts";
import type { FaultyDisks } from "../faults_suite.ts";
import { Harness, type Host, type HostMachine } from "./host.ts";

const GROUPS = ["test-small", "test-large"] as const;

/** A fake machine with a group of 1 GiB and one of 2 GiB; a new one for each test. */
export const fakeHost: Host = {
  name: "fake",
  groups: GROUPS,
  setUp: () => {
    const exec = new FakeMachine();
    exec.addGroup(GROUPS[0], 1n << 30n);
    exec.addGroup(GROUPS[1], 2n << 30n);
    return Promise.resolve(hostMachine(exec));
  },
  cgroups: (root) => {
    const cgroups = new FakeCgroups(root);
    cgroups.mount();
    return Promise.resolve({
      addPod: (uid) => Promise.resolve(cgroups.addPod(KUBELET_CGROUP_PATHS["cgroupfs, burstable"]!(uid))),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    });
  },
};

/** The same with the tools of Debian 13. */
export const fakeDebian13: Host = {
  ...fakeHost,
  name: "fake, Debian 13",
  setUp: async () => {
    const machine = await fakeHost.setUp();
    Object.assign((machine.exec as FakeMachine).host, DEBIAN_13);
    return machine;
  },
};

/** The same where each report also has rows and texts that cannot be read. */
export const fakeOddReports: Host = {
  ...fakeHost,
  name: "fake, odd reports",
  serve: (exec, ...others) => Harness.serve(withOddRows(exec), ...others),
};

/** The same machine with SELinux. */
export const fakeSeLinux: Host = withSeLinux(fakeHost);

/** The same machine where the mount table cannot be read as a file, so that findmnt lists the mounts. */
export const fakeHostWithFindmnt: Host = {
  ...fakeHost,
  name: "fake with findmnt",
  setUp: async () => {
    const machine = await fakeHost.setUp();
    (machine.exec as FakeMachine).hasMountTable = false;
    return machine;
  },
};

/** The same with SELinux. */
export const fakeSeLinuxWithFindmnt: Host = withSeLinux(fakeHostWithFindmnt);

function withSeLinux(host: Host): Host {
  return {
    ...host,
    name: `${host.name}, SELinux`,
    setUp: async () => {
      const machine = await host.setUp();
      (machine.exec as FakeMachine).host.seLinux = true;
      return machine;
    },
  };
}

function hostMachine(machine: FakeMachine): HostMachine & AsyncDisposable {
  /** Deactivates all LVs of the group of a thin LV. @returns the LV, and its pool */
  const deactivateGroupOf = (path: string): { lv: FakeLv; pool: FakePool } => {
    const { group, lv } = machine.allLvs().find(({ group, lv }) => `${group.name}/${lv.name}` === path)!;
    for (const each of group.lvs) each.active = false;
    return { lv, pool: group.lvs.find(({ name }) => name === lv.pool)!.thinPool! };
  };
  return {
    exec: machine,
    lockGroup: (group, mode) => machine.lockGroup(group, mode),
    openDevice: (path) => Promise.resolve(machine.openDevice(path)),
    copyMountNamespace: () => {
      const mounted = machine.mounts.flatMap(({ lv, root }) => lv === undefined || root !== "/" ? [] : [lv]);
      machine.host.mountedElsewhere = new Set(mounted);
      return Promise.resolve({
        [Symbol.asyncDispose]: () => Promise.resolve(machine.host.mountedElsewhere.clear()),
      });
    },
    makePending: (path) => {
      deactivateGroupOf(path).lv.pending = true;
      return Promise.resolve();
    },
    keepMessage: (path) => {
      deactivateGroupOf(path).pool.oldMessage = "followed";
      return Promise.resolve();
    },
    interruptTransaction: (path) => {
      deactivateGroupOf(path).pool.oldMessage = "half-followed";
      return Promise.resolve();
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

/** A fake machine with one group on each of two disks; a new one for each test. */
export function fakeFaultyDisks(): FaultyDisks {
  const machine = new FakeMachine();
  machine.addGroup(GROUPS[0], 1n << 30n);
  machine.addGroup(GROUPS[1], 2n << 30n);
  return {
    name: "fake",
    groups: GROUPS,
    exec: () => machine,
    hangFirstDisk: () => {
      const pending = Promise.withResolvers<void>();
      machine.hungPvs.set("/dev/vdb", pending);
      return Promise.resolve(() => {
        machine.hungPvs.delete("/dev/vdb");
        pending.resolve();
        return Promise.resolve();
      });
    },
    loseSecondDisk: () => {
      const [lost] = machine.groups.splice(1, 1);
      return Promise.resolve(() => {
        machine.groups.push(lost!);
        return Promise.resolve();
      });
    },
  };
}

/** A fake machine with a group of two disks and one of five, of 256 MiB each; a new one for each test. */
export const fakeMultiPvHost: Host = {
  ...fakeHost,
  groups: ["disks-narrow", "disks-wide"],
  setUp: () => {
    const exec = new FakeMachine();
    exec.addGroup("disks-narrow", 512n << 20n, 4n << 20n, 2);
    exec.addGroup("disks-wide", 1280n << 20n, 4n << 20n, 5);
    const detachPv = (name: string) => {
      const group = exec.groups.find((group) => group.name === name)!;
      group.missingPvs = 1;
      return Promise.resolve({ [Symbol.asyncDispose]: () => Promise.resolve(void (group.missingPvs = 0)) });
    };
    return Promise.resolve({ ...hostMachine(exec), detachPv });
  },
};
