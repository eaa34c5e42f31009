/**
 * Targets: what LVM and the other programs of a host print.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { examine } from "../../lvm/doctor/doctor.ts";
import { diagnosisJson, diagnosisText } from "../../lvm/doctor/text.ts";
import type { Command, Exec, Output } from "../../lvm/exec.ts";
import { readSignatures } from "../../lvm/host/device.ts";
import { readDmTargets, readLvmVersion, readMappedDevices, readPoolUsage } from "../../lvm/host/device_mapper.ts";
import { type MountInfo, parseMountInfo } from "../../lvm/host/mount_info.ts";
import { parseMounts, readMounts, readUsage, readUsages } from "../../lvm/host/mounts.ts";
import { readDisks } from "../../lvm/host/disks.ts";
import { readConfiguration } from "../../lvm/model/configuration.ts";
import { parseReport } from "../../lvm/model/report_parser.ts";
import { parseSurvey, parseUnassignedPvs } from "../../lvm/model/survey.ts";
import {
  parseDeletedTags,
  parseSnapshotTags,
  parseUsedTags,
  parseVolumeTags,
  snapshotTags,
  volumeTags,
} from "../../lvm/model/tags.ts";
import { readStatus } from "../../lvm/status/status.ts";
import { statusJson, statusText } from "../../lvm/status/text.ts";
import { parsed, parsedLater } from "./expect.ts";
import { changedJson, changedText, extendedJson, oddTexts } from "./inputs.ts";
import { type Json, statelessTarget, type Target } from "./target.ts";

const FIXTURES = new URL("../fixtures/", import.meta.url);

function fixture(name: string): string {
  return Deno.readTextFileSync(new URL(name, FIXTURES));
}

const jsonFixture = (name: string) => JSON.parse(fixture(name)) as Json;

const REPORTS = ["report.json", "report_layouts.json", "report_spare_disks.json"].map(jsonFixture);
const SURVEYS = ["doctor/survey_missing.json", "doctor/survey_shared.json"].map(jsonFixture);

/** The driver whose tags are in the fixtures and in {@linkcode TAG_SETS}. */
const DRIVER = "lvm.denolith.dev";

const ID = "v1-11111111111111111111111111111111";
const UUID = "11111111-2222-3333-4444-555555555555";

const TAG_SETS: readonly (readonly string[])[] = [
  [`denolith=${DRIVER}`, `denolith.volume=${ID}`, "denolith.fs=raw"],
  [`denolith=${DRIVER}`, `denolith.volume=${ID}`, `denolith.fs=formatted:ext4:${UUID}`, "denolith.mkfs=-m!200"],
  [
    `denolith=${DRIVER}`,
    `denolith.volume=${ID}`,
    "denolith.fs=wanted:xfs",
    "denolith.trim=d+24h",
    "denolith.erase=none",
  ],
  [
    `denolith=${DRIVER}`,
    `denolith.volume=${ID}`,
    "denolith.fs=raw",
    `denolith.source=volume:${ID}`,
    "denolith.copied=4096",
  ],
  [`denolith=${DRIVER}`, `denolith.volume=${ID}`, "denolith.fs=raw", "denolith.io=ri500:wb4Mi/g", "denolith.shared=no"],
  [`denolith=${DRIVER}`, `denolith.snapshot=${ID}`, `denolith.source=${ID}`],
  [`denolith=${DRIVER}`, `denolith.deleted=${ID}`, "denolith.erased=4096"],
  [`denolith.used=${DRIVER}:${ID}:${UUID}`, "denolith=other.driver"],
];

/** An exec whose commands print a text, with an exit status. */
function printing(stdout: string, code = 0): Exec {
  return {
    run: (): Promise<Output> => Promise.resolve({ code, stdout, stderr: code === 0 ? "" : stdout }),
    idle: () => Promise.resolve(),
  };
}

const options = fc.array(fc.constantFrom("rw", "ro", "relatime", "subvol=/a b", "x#"), { minLength: 1 });
const paths = fc.array(fc.oneof(fc.constantFrom(..." \t\n\\#-\r\u00a0"), fc.string({ unit: "binary" }))).map((parts) =>
  `/${parts.join("")}`
);

/** Mounts as the kernel knows them, with any characters in their names. */
const mountInfos: fc.Arbitrary<MountInfo> = fc.record({
  deviceNumber: fc.constantFrom("0:5", "253:12"),
  root: paths,
  target: paths,
  options,
  fsType: fc.constantFrom("ext4", "fuse.x-y"),
  source: fc.oneof(fc.constantFrom("", "-", "none", "/dev/mapper/data-vol"), paths),
  filesystemOptions: options,
});

/** Writes a mount as the kernel does (fs/proc_namespace.c, show_mountinfo). */
function mountLine(mount: MountInfo, index: number): string {
  const escaped = (text: string) =>
    text.replace(/[ \t\n\\#]/g, (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`);
  const { deviceNumber, root, target, options, fsType, source, filesystemOptions } = mount;
  const fields = ["shared:1", "master:2", "propagate_from:3", "unbindable"].slice(index % 5);
  return [
    ...[`${index}`, "1", deviceNumber, escaped(root), escaped(target), options.map(escaped).join(), ...fields, "-"],
    ...[fsType, escaped(source), filesystemOptions.map(escaped).join()],
  ].join(" ") + "\n";
}

/** The readers of what programs print, by the name of the output that they read. */
const READERS: Readonly<Record<string, (exec: Exec) => Promise<unknown>>> = {
  findmnt: readMounts,
  lsblk: readDisks,
  wipefs: (exec) => readSignatures(exec, "/dev/mapper/x"),
  df: (exec) => readUsage(exec, "/x"),
  dfs: (exec) => readUsages(exec, ["/x", "/y"]),
  devices: readMappedDevices,
  targets: readDmTargets,
  usage: readPoolUsage,
  version: readLvmVersion,
  settings: readConfiguration,
};

const OUTPUTS: Readonly<Record<keyof typeof READERS, readonly string[]>> = {
  findmnt: ["findmnt.json", "doctor/findmnt_deleted.json"].map(fixture),
  lsblk: ["doctor/lsblk_disks.json"].map(fixture),
  wipefs: ["wipefs_blank.json", "wipefs_ext4.json", "wipefs_leftover.json"].map(fixture),
  df: ["df.txt"].map(fixture),
  dfs: ["doctor/df_several.txt"].map(fixture),
  devices: ["doctor/dmsetup_info.txt"].map(fixture),
  targets: ["doctor/dmsetup_targets.txt"].map(fixture),
  usage: ["data-p: 0 8192 thin-pool 1 12/1024 30/128 - rw discard_passdown queue_if_no_space - 1024\n"],
  version: ["doctor/lvm_version.txt"].map(fixture),
  settings: ["doctor/lvmconfig.txt", "doctor/lvmconfig_lists.txt"].map(fixture),
};

/** Returns outputs of one reader: changed as JSON where it is JSON, and changed as text. */
function outputsOf(reader: string): fc.Arbitrary<string> {
  const texts = OUTPUTS[reader]!;
  const values = texts.filter((text) => text.startsWith("{")).map((text) => JSON.parse(text) as Json);
  if (values.length === 0) return changedText(texts);
  return fc.oneof({ weight: 3, arbitrary: changedJson(values).map((value) => JSON.stringify(value)) }, {
    weight: 1,
    arbitrary: changedText(texts),
  });
}

/** A program that prints something odd, and the output that it prints. */
interface OddOutput {
  readonly [key: string]: Json;
  readonly reader: string;
  readonly stdout: string;
  readonly code: number;
}

const oddOutputs: fc.Arbitrary<OddOutput> = fc.constantFrom(...Object.keys(READERS)).chain((reader) =>
  fc.record({ reader: fc.constant(reader), stdout: outputsOf(reader), code: fc.constantFrom(0, 0, 0, 0, 1, 5, 32) })
);

/** A host whose reports, settings and tables are odd: the outputs by command. */
interface OddHost {
  readonly [key: string]: string;
}

/** Returns the key of an {@linkcode OddHost} for a command, as `lvm fullreport`. */
function commandKey({ program, args }: Command): string {
  return program === "lvm" || program === "dmsetup" ? `${program} ${args[0]}` : program;
}

const oddHosts: fc.Arbitrary<OddHost> = fc.record({
  "lvm fullreport": fc.oneof(changedJson(SURVEYS), changedJson(REPORTS, { maxChanges: 1 })).map((v) =>
    JSON.stringify(v)
  ),
  "lvm lvmconfig": outputsOf("settings"),
  "lvm version": outputsOf("version"),
  "dmsetup info": outputsOf("devices"),
  "dmsetup targets": outputsOf("targets"),
  findmnt: outputsOf("findmnt"),
  lsblk: outputsOf("lsblk"),
  df: outputsOf("dfs"),
  udevadm: oddTexts,
});

function oddHostExec(outputs: OddHost): Exec {
  return {
    run: (command) => {
      assert(!command.mutates, `${command.program} changes something`);
      return Promise.resolve({ code: 0, stdout: outputs[commandKey(command)] ?? "", stderr: "" });
    },
    idle: () => Promise.resolve(),
  };
}

/** Reads the tags of all LVs and groups of a report. */
function readAllTags(driver: string, tags: readonly string[]): void {
  const volume = parsed(["ForeignData"], () => parseVolumeTags(driver, tags));
  // of a volume with a source, volumeTags() begins a copy
  if (volume !== undefined && (volume.source === undefined) === (volume.copied === undefined)) {
    const { mkfsOptions, ...written } = volume;
    // options of older versions may hold anything; they are validated before use
    assertEquals(parseVolumeTags(driver, volumeTags(driver, volume))?.mkfsOptions.join(" "), mkfsOptions.join(" "));
    assertEquals({ ...parseVolumeTags(driver, volumeTags(driver, volume)), mkfsOptions: 0 }, {
      ...written,
      mkfsOptions: 0,
    });
  }
  const snapshot = parsed(["ForeignData"], () => parseSnapshotTags(driver, tags));
  if (snapshot !== undefined) assertEquals(parseSnapshotTags(driver, snapshotTags(driver, snapshot)), snapshot);
  const deleted = parsed([], () => parseDeletedTags(driver, tags));
  assert(deleted === undefined || (volume === undefined && snapshot === undefined), "deleted, and in use");
  parsed([], () => parseUsedTags(driver, tags));
}

/** Returns a text as it is, and another value as JSON. */
function textOf(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The targets. */
export const LVM_TARGETS: readonly Target[] = [
  statelessTarget({
    name: "report",
    description: "LVM's report of groups, logical and physical volumes",
    inputs: changedJson([...REPORTS, ...SURVEYS]),
    testRuns: 30,
    check: (report) => {
      const text = JSON.stringify(report);
      const groups = parsed(["CommandFailed"], () => parseReport(text)) ?? [];
      for (const { lvs, tags } of groups) {
        for (const each of [tags, ...lvs.map(({ tags }) => tags)]) readAllTags(DRIVER, each);
      }
      parsed(["CommandFailed"], () => parseSurvey(text));
      parsed(["CommandFailed"], () => parseUnassignedPvs(text));
    },
  }),
  statelessTarget({
    name: "report-newer",
    description: "LVM's report with fields that this version does not know",
    inputs: extendedJson([...REPORTS, ...SURVEYS]) as fc.Arbitrary<{ base: Json; extended: Json }>,
    testRuns: 30,
    check: ({ base, extended }) =>
      assertEquals(parseReport(JSON.stringify(extended)), parseReport(JSON.stringify(base))),
  }),
  statelessTarget({
    name: "tags",
    description: "the tags of a logical volume or a group",
    inputs: fc.oneof(
      changedJson(TAG_SETS).map((tags) => (Array.isArray(tags) ? tags : [tags]).map(textOf)),
      fc.tuple(fc.constantFrom(...TAG_SETS), fc.nat(), changedText(TAG_SETS.flat())).map(([tags, at, tag]) =>
        tags.with(at % tags.length, tag)
      ),
    ),
    testRuns: 200,
    check: (tags) => readAllTags(DRIVER, tags),
  }),
  statelessTarget({
    name: "outputs",
    description: "the output of one program: findmnt, lsblk, wipefs, df, dmsetup, lvmconfig",
    inputs: oddOutputs,
    testRuns: 200,
    check: async ({ reader, stdout, code }) => {
      const result = await parsedLater(
        ["CommandFailed", "FailedPrecondition"],
        () => READERS[reader]!(printing(stdout, code)),
      );
      if (reader !== "wipefs" || result === undefined) return;
      // a device counts as blank only when wipefs succeeded with an empty list
      const { signatures } = JSON.parse(stdout) as { signatures: unknown[] };
      assertEquals([code, (result as unknown[]).length], [0, signatures.length]);
    },
  }),
  statelessTarget({
    name: "mount-table",
    description: "the mount table of the kernel: what was written is read, and no line is ever left out",
    inputs: fc.oneof(
      fc.array(mountInfos, { minLength: 1 }).map((mounts) => ({ text: mounts.map(mountLine).join(""), mounts })),
      changedText([fixture("mountinfo.txt")], { maxChanges: 8 }).map((text) => ({ text, mounts: undefined })),
    ) as fc.Arbitrary<{ text: string; mounts: MountInfo[] | undefined } & Json>,
    testRuns: 200,
    check: ({ text, mounts }) => {
      const result = parseMountInfo(text);
      if (mounts !== undefined) assertEquals(result, mounts);
      const lines = text.split("\n").length - 1;
      assert(result === undefined || (result.length === lines && lines > 0));
      assert([undefined, lines].includes(parseMounts(text)?.length));
    },
  }),
  statelessTarget({
    name: "host",
    description: "denolith status and denolith doctor on a host whose programs print odd things",
    inputs: oddHosts,
    testRuns: 8,
    check: async (outputs) => {
      const options = { exec: oddHostExec(outputs), driver: DRIVER };
      const status = await parsedLater(["CommandFailed", "FailedPrecondition"], () => readStatus(options));
      if (status !== undefined) [statusText(status), statusJson(status)].forEach((text) => assert(text.length > 0));
      await checkDoctor(options);
    },
  }),
];

/** Runs the doctor, which turns every failure into a finding. */
async function checkDoctor(options: { exec: Exec; driver: string }): Promise<void> {
  const diagnosis = await examine(options);
  assert(diagnosisText(diagnosis).length > 0 && diagnosisJson(diagnosis).length > 0);
}
