/**
 * The fake machine's tools that only read: lsblk and whereis of util-linux 2.38, dmsetup 1.02, udevadm 252, modinfo.
 *
 * @module
 */

import { basename } from "@std/path";
import { THIN_TOOLS, type ThinTool } from "../../../lvm/doctor/pools.ts";
import { type Output, type Program, PROGRAM_DIRECTORIES, PROGRAMS } from "../../../lvm/exec.ts";
import { hiddenDevice, metadataSnapshotMessage } from "./block_tools.ts";
import { diskProperties, diskRow, listDisks } from "./disks.ts";
import {
  devicePath,
  expectArgs,
  failure,
  type FakeGroup,
  type FakeLv,
  type FakeMachine,
  isReadOnly,
  ok,
} from "./machine.ts";
import { isMapping, mappingsOf, ownerOf } from "./luks.ts";
import { deviceTree } from "./stacked_devices.ts";
import { changeThin, clear, removeTableless, resume, suspend } from "./suspension.ts";
import { deviceBytes, kernelPools } from "./thin.ts";

/** Lists what is at paths, or all block devices with what is on them. */
export function lsblk(machine: FakeMachine, args: readonly string[]): Output {
  if (args.at(-1) === "NAME,MAJ:MIN,TYPE,FSTYPE,UUID") return listBlockDevices(machine, args);
  if (args.at(-1)!.startsWith("NAME,MAJ:MIN,TYPE,SIZE,ROTA")) return listDisks(machine);
  if (args[3] === "LOG-SEC") return logicalSectors(machine, args.slice(4));
  if (args[3]?.startsWith("NAME,KNAME,TYPE")) return deviceTree(machine, args.slice(4));
  expectArgs(args, /^--json --bytes --nodeps --output NAME,MAJ:MIN,SIZE,RO \//);
  const paths = args.slice(5);
  const rows = paths.map((path) => {
    const hidden = hiddenDevice(machine, path);
    if (hidden !== undefined) {
      return { name: basename(path), "maj:min": hidden.number, size: Number(hidden.lv.size), ro: false };
    }
    const lv = machine.lvAt(path);
    return lv === undefined ? diskRow(machine, path) : deviceRow(machine, lv);
  });
  const found = rows.filter((row) => row !== undefined);
  const stderr = paths.filter((_, index) => rows[index] === undefined)
    .map((path) => `lsblk: ${path}: not a block device\n`).join("");
  return {
    code: stderr === "" ? 0 : found.length === 0 ? 32 : 64,
    stdout: JSON.stringify({ blockdevices: found }),
    stderr,
  };
}

/** Lists the sizes of the logical sectors of devices, which are those of their disks. */
function logicalSectors(machine: FakeMachine, paths: readonly string[]): Output {
  const groups = paths.map((path) => {
    const lv = machine.lvAt(path);
    return lv === undefined
      ? machine.groups.find(({ pvs }) => pvs.some((pv) => pv.path === path))
      : ownerOf(machine, lv).group;
  });
  if (groups.includes(undefined)) return failure(32, `lsblk: ${paths.join()}: not a block device`);
  return ok(JSON.stringify({ blockdevices: groups.map((group) => ({ "log-sec": group!.sectorBytes ?? 512 })) }));
}

/** Lists devices with what is mounted and built on them. */
function deviceRow(machine: FakeMachine, lv: FakeLv): Record<string, unknown> {
  const size = Number(deviceBytes(lv));
  return { name: deviceName(machine, lv), "maj:min": `253:${lv.minor}`, size, ro: isReadOnly(lv) };
}

function listBlockDevices(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--json --list --paths --all --output /);
  const pvs = machine.groups.flatMap((group) => group.pvs.slice(group.missingPvs)).concat(
    machine.host.hiddenPvs,
    machine.host.unusedPvs,
  );
  return ok(JSON.stringify({
    blockdevices: [
      {
        name: "/dev/vda",
        "maj:min": "254:0",
        type: "disk",
        fstype: "ext4",
        uuid: "11111111-2222-3333-4444-555555555555",
      },
      ...machine.host.loops.filter(({ path }) => !pvs.some((pv) => pv.path === path)).map(({ path, found }) => ({
        ...{ name: path, "maj:min": path.replace("/dev/loop", "7:"), type: "loop", fstype: found ?? null, uuid: null },
      })),
      ...pvs.map(({ path, uuid }) => ({
        name: path,
        "maj:min": diskDeviceNumber(path),
        type: path.startsWith("/dev/loop") ? "loop" : path.startsWith("/dev/mapper/") ? "crypt" : "disk",
        fstype: "LVM2_member",
        uuid,
      })),
      ...[...machine.allLvs(), ...mappingsOf(machine)].filter(({ lv }) => lv.active).map(({ lv }) => ({
        name: `/dev/mapper/${deviceName(machine, lv)}`,
        "maj:min": `253:${lv.minor}`,
        type: isMapping(lv) ? "crypt" : "lvm",
        fstype: lv.content.signatures[0]?.type ?? null,
        uuid: lv.content.signatures[0]?.uuid ?? null,
      })),
    ],
  }));
}

function deviceName(machine: FakeMachine, lv: FakeLv): string {
  return basename(devicePath(ownerOf(machine, lv).group, lv));
}

/** Reports whether the kernel has the number of the transaction before LVM's last one. */
function isBehind({ lvs }: FakeGroup, pool: FakeLv): boolean {
  return pool.thinPool!.oldMessage === "half-followed" || lvs.some((lv) => lv.pool === pool.name && lv.pending);
}

/** Returns the kernel's status of the thin pools: used and total blocks of their data and metadata. */
function poolStatus(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^status --target thin-pool --noflush$/);
  return ok(
    kernelPools(machine).map(({ group, lv }) => {
      const { dataPercent, metadataPercent, metadataSize, health, metadataSnapshot } = lv.thinPool!;
      const [data, metadata] = [lv.size >> 16n, metadataSize >> 12n];
      const usedBlocks = (all: bigint, percent: number) => Math.ceil(Number(all) * percent / 100);
      const status = health === "failed"
        ? "Fail"
        : `${lv.thinPool!.transactionId - (isBehind(group, lv) ? 1 : 0)} ${
          usedBlocks(metadata, metadataPercent)
        }/${metadata} ${usedBlocks(data, dataPercent)}/${data} ${
          metadataSnapshot ? 52 : "-"
        } rw discard_passdown queue_if_no_space - 1024 `;
      return `${devicePath(group, lv).replace("/dev/mapper/", "")}-tpool: 0 ${lv.size / 512n} thin-pool ${status}\n`;
    }).join(""),
  );
}

/** Lists targets and devices, reports the status of thin pools, suspends a device, and makes its node. */
export function dmsetup(machine: FakeMachine, args: readonly string[]): Output {
  const { root, targets, suspended, orphanDevices, orphanDevicesOn } = machine.host;
  if (!root) {
    return failure(
      1,
      "/dev/mapper/control: open failed: Permission denied\nFailure to communicate with kernel device-mapper driver.",
    );
  }
  if (args.join(" ") === "targets") {
    return ok([...targets].map(([name, version]) => `${name.padEnd(16)} v${version}\n`).join(""));
  }
  if (args[0] === "status") return poolStatus(machine, args);
  if (args[0] === "suspend") return suspend(machine, args[1]!);
  if (args[0] === "clear") return clear(machine, args.slice(1));
  if (args[0] === "remove") return removeTableless(machine, args.at(-1)!);
  if (args[0] === "resume") return resume(machine, args.at(-1)!);
  if (/^(?:delete|create_snap) /.test(args[3] ?? "")) return changeThin(machine, args);
  if (args[0] === "message" && args[3]!.endsWith("_metadata_snap")) return metadataSnapshotMessage(machine, args);
  if (args[0] === "message") {
    expectArgs(args, /^message \S+-tpool 0 set_transaction_id \d+ \d+$/);
    const found = kernelPools(machine).find(({ lv }) => `${deviceName(machine, lv)}-tpool` === args[1])!;
    found.lv.thinPool!.oldMessage = "followed";
    return ok();
  }
  if (args[0] === "mknodes") {
    const missing = machine.host.missingDeviceNodes;
    for (const lv of missing) if (lv.active && deviceName(machine, lv) === args[1]) missing.delete(lv);
    return ok();
  }
  expectArgs(
    args,
    /^info --columns --noheadings --separator \| --options name,uuid,devno,suspended,devnos_used,tables_loaded(?: \S+)?$/,
  );
  const uuid = (text: string) => text.replaceAll("-", "");
  const state = (name: string, lv?: FakeLv) => suspended.has(name) || lv?.suspended ? "Suspended" : "Active";
  const devices = machine.allLvs().filter(({ lv }) => lv.active).map(({ group, lv }) => {
    const name = deviceName(machine, lv);
    const diskNumber = machine.host.onPulledDisk.has(lv) ? "254:240" : diskDeviceNumber(group.pvs[0]!.path);
    const tables = lv.killedTable === "only" ? "Inactive" : lv.killedTable === "beside" ? "Both" : "Live";
    return [name, `LVM-${uuid(group.uuid)}${uuid(lv.uuid)}`, `253:${lv.minor}`, state(name, lv), diskNumber, tables];
  });
  const all = [
    ...devices,
    ...mappingsOf(machine).map(({ parent, lv }) => [
      ...[lv.name, lv.uuid, `253:${lv.minor}`, state(lv.name, lv), `253:${parent.minor}`, "Live"],
    ]),
    ...[...orphanDevices].map((
      [name, uuid],
      index,
    ) => [name, uuid, `253:${900 + index}`, state(name), orphanDevicesOn, "Live"]),
  ];
  const named = args[7];
  const hidden = named === undefined ? undefined : hiddenDevice(machine, `/dev/mapper/${named}`);
  if (hidden !== undefined) return ok([named, hidden.uuid, hidden.number, "Active", "254:16", "Live"].join("|") + "\n");
  const listed = all.filter(([name]) => named === undefined || name === named);
  if (named !== undefined && listed.length === 0) return failure(1, `Device ${named} not found\nCommand failed.`);
  return ok(listed.length === 0 ? "No devices found\n" : listed.map((fields) => fields.join("|") + "\n").join(""));
}

/** Returns the number of a disk as the kernel numbers virtio disks: 16 for each. */
function diskDeviceNumber(path: string): string {
  return `254:${16 * (path.charCodeAt(path.length - 1) - "a".charCodeAt(0))}`;
}

/** Tells the file of a module. */
export function modinfo(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--field filename \S+$/);
  const name = args[2]!;
  return machine.host.modules.has(name)
    ? ok(`/lib/modules/6.1.0/kernel/drivers/md/${name}.ko\n`)
    : failure(1, `modinfo: ERROR: Module ${name} not found.`);
}

/** Tells whether udev answers. It never has work to do here. */
export function udevadm(machine: FakeMachine, args: readonly string[]): Output {
  if (args[0] === "settle") return ok();
  if (args[0] === "info") return diskProperties(machine, args.at(-1)!.replace("--name=", ""));
  expectArgs(args, /^control --ping --timeout=\d+$/);
  return machine.host.udev === "" ? ok() : failure(1, `Failed to send a ping message: ${machine.host.udev}`);
}

/** Finds programs. */
export function whereis(machine: FakeMachine, args: readonly string[]): Output {
  const names = [...PROGRAMS, ...THIN_TOOLS];
  expectArgs(args, new RegExp(`^-b -B ${PROGRAM_DIRECTORIES.join(" ")} -f ${names.join(" ")}$`));
  const paths = (name: Program | ThinTool) => machine.host.missing.has(name) ? "" : ` /usr/sbin/${name}`;
  return ok(names.map((name) => `${name}:${paths(name)}\n`).join(""));
}
