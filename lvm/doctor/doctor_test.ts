import { assert, assertEquals, assertMatch } from "@std/assert";
import { healthyMachine } from "../../tests/fake/machine/healthy_machine.ts";
import { endSync } from "../../tests/fake/machine/pvs.ts";
import { leaveMetadataFree } from "../../tests/fake/machine/metadata_area.ts";
import { newUuid } from "../../tests/fake/machine/machine.ts";
import { diagnosisJson, diagnosisText } from "./text.ts";
import { type Command, describeCommand } from "../exec.ts";
import { CHECK_NAMES, CHECKS } from "./doctor.ts";
import { anyMatcherOf, exactMatcher } from "../model/groups.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { volumeTags } from "../model/tags.ts";
import { HOST_PATTERN } from "../host/stacked_devices.ts";
import { addKubeletLoop } from "../../tests/fake/machine/stacked_devices.ts";
import {
  addPool,
  diagnose,
  DRIVER,
  type HealthyMachine,
  id,
  throwNoAnswer,
  tmpfs,
} from "../../tests/fake/machine/doctor_machine.ts";

Deno.test("examine() finds nothing wrong on a healthy machine, reads everything once and changes nothing", async () => {
  const { machine } = healthyMachine();
  const commands: Command[] = [];
  machine.fault = (command) => void commands.push(command);
  const { level, checks, findings } = await diagnose(machine);
  assertEquals([level, findings], ["ok", []]);
  assertEquals(checks.map(({ check }) => check), [...CHECK_NAMES]);
  assertEquals(commands.filter(({ mutates }) => mutates), []);
  assert(commands.length <= 15, commands.map(describeCommand).join("\n"));
  assert(commands.every(({ deadlineMs }) => deadlineMs !== undefined && deadlineMs <= 20_000));
});

Deno.test("each check of the doctor is in the file of its name, and in the reference", async () => {
  const reference = await Deno.readTextFile(new URL("../../docs/reference/doctor.md", import.meta.url));
  const described = [...reference.matchAll(/^- `([a-z]+)`:/gm)].map(([, name]) => name);
  assertEquals(described, [...CHECK_NAMES]);
  for (const [name, check] of Object.entries(CHECKS)) {
    const file = await import(new URL(`${name}.ts`, import.meta.url).href);
    assertEquals(file[check.name], check, name);
  }
});

/** Conditions that look like problems, but are none. */
const NO_PROBLEMS: Record<string, (parts: HealthyMachine) => unknown> = {
  "a disk of a guest in a volume": ({ lv }) => lv.content.signatures = [{ type: "LVM2_member", uuid: "guest" }],
  "a host whose filter hides what pods write": ({ machine, lv }) => {
    machine.host.hiddenPvs.push({ path: addKubeletLoop(machine, lv), uuid: "guest" });
    machine.host.settings.set("filter", `["${HOST_PATTERN}"]`);
  },
  "a host with a devices file": ({ machine, lv }) => {
    machine.host.hiddenPvs.push({ path: addKubeletLoop(machine, lv), uuid: "guest" });
    machine.host.settings.set("use_devicesfile", "1");
  },
  "a disk of LVM's in no group": ({ machine }) => machine.host.unusedPvs.push({ path: "/dev/vdz", uuid: "spare" }),
  "volume_list names the group": ({ machine }) => machine.host.settings.set("volume_list", '["data"]'),
  "volume_list names the driver's tag": ({ machine }) =>
    machine.host.settings.set("volume_list", `["@denolith=${DRIVER}"]`),
  "volume_list names a tag of the group": ({ machine, group }) => {
    group.tags.add("local");
    machine.host.settings.set("volume_list", '["@local"]');
  },
  "groups of this host, and of none": ({ machine, group, lv }) => {
    group.systemId = "this-host";
    const tags = new Set([...lv.tags].map((tag) => tag.replace(id, volumeIdOf("two"))));
    machine.addGroup("fast", 1n << 30n).lvs.push({ ...lv, name: "two", uuid: newUuid(), tags, active: false });
  },
  "a thin module that is loaded when it is needed": ({ machine }) => machine.host.targets.delete("thin-pool"),
  "thin programs at another path": ({ machine }) => {
    machine.host.missing.add("thin_check");
    machine.host.settings.set("thin_check_executable", '"/opt/bin/thin_check"');
  },
  "a full pool of another owner": (parts) => {
    addPool(parts).dataPercent = 100;
    parts.group.lvs.at(-1)!.tags.clear();
  },
  "a pool with free space": (parts) => addPool(parts),
  "a pool without a device node": (parts) => {
    addPool(parts);
    parts.machine.host.missingDeviceNodes.add(parts.group.lvs.at(-1)!);
  },
  "spare space that is free": ({ group }) => group.tags.add("denolith.spare=5percent"),
  "an LV of another driver with a name of this driver": ({ group, lv }) =>
    group.lvs.push({
      ...lv,
      name: volumeLvName(volumeIdOf("two")),
      uuid: newUuid(),
      active: false,
      tags: new Set(["denolith=x"]),
    }),
  "no directory of locks yet": ({ machine }) => machine.host.lockFolder = "",
  "a directory of locks that others can read": ({ machine }) => machine.host.lockFolder = "0 755 d",
  "a read-only mount that another hides": ({ machine }) =>
    machine.mounts.push(tmpfs("/run/lock", true), tmpfs("/run", false)),
};

for (const [name, make] of Object.entries(NO_PROBLEMS)) {
  Deno.test(`examine() finds nothing wrong: ${name}`, async () => {
    const healthy = healthyMachine();
    make(healthy);
    assertEquals((await diagnose(healthy.machine)).findings, []);
  });
}

Deno.test("examine(): nearly full COW space is a warning, unless it cannot overflow", async () => {
  const { machine, snapshot } = healthyMachine();
  snapshot.cowPercent = 81.5;
  const { findings: [finding] } = await diagnose(machine);
  assertEquals([finding?.level, finding?.subject], ["warning", `data/${snapshot.name}`]);
  assertMatch(finding!.message, /81\.5 % full/);
  snapshot.size = 68n << 20n;
  assertEquals((await diagnose(machine)).findings, []);
});

Deno.test("examine(): groups are the requested ones and those in use; without either, all", async () => {
  const { machine } = healthyMachine();
  machine.addGroup("idle", 1n << 30n);
  const named = async (groups?: string) => {
    const { checks } = await diagnose(machine, groups === undefined ? {} : { groups: exactMatcher(groups) });
    return checks.find(({ check }) => check === "groups")!.summary.match(/data|idle/g);
  };
  assertEquals([await named(), await named("idle")], [["data"], ["data", "idle"]]);
  machine.groups.shift();
  machine.mounts.pop();
  assertEquals(await named(), ["idle"]);

  const summaries = (await diagnose(machine, { groups: exactMatcher("nope") })).checks.map(({ summary }) => summary);
  assertEquals(summaries.slice(4, 6), ["none", "no group"]);
  const { findings } = await diagnose(machine, { groups: anyMatcherOf([exactMatcher("idle"), exactMatcher("nope")]) });
  assertEquals(findings.map(({ check, level, subject }) => [check, level, subject]), [["groups", "error", "nope"]]);
  assertMatch(findings[0]!.message, /this host has idle/);
  assertMatch(findings[0]!.remedy!, /vgcreate/);
});

Deno.test("examine() counts hidden disks", async () => {
  const { machine } = healthyMachine();
  const summary = async () => (await diagnose(machine)).checks.find(({ check }) => check === "filters")!.summary;
  assertEquals(await summary(), "LVM uses all disks with its label");
  machine.host.hiddenPvs.push({ path: "/dev/vdz", uuid: "a-b" });
  assertEquals(await summary(), "LVM does not use 1 of the disks with its label");
});

Deno.test("examine(): a socket on which no process listens is a note", async () => {
  const { machine } = healthyMachine();
  const { level, findings } = await diagnose(machine, { socket: { path: "/run/x.sock", state: "stale" } });
  assertEquals([level, findings.map(({ subject }) => subject)], ["info", ["/run/x.sock"]]);
  assertEquals((await diagnose(machine, { socket: { path: "/run/x.sock", state: "absent" } })).level, "ok");
});

Deno.test("examine() never fails, whatever does not respond, and a driver with another name has no volumes here", async () => {
  const { machine } = healthyMachine();
  assertEquals(
    (await diagnose(machine, { driver: "other.driver" })).checks.at(-1)?.summary,
    "0 volumes, 0 snapshots; a driver is serving",
  );
  machine.fault = () => {
    throw new Deno.errors.PermissionDenied("Permission denied (os error 13)");
  };
  assertMatch((await diagnose(machine)).findings.find(({ check }) => check === "groups")!.message, /Permission denied/);
  machine.fault = () => throwNoAnswer();
  const { level, findings } = await diagnose(machine);
  assertEquals(level, "error");
  assert(findings.some(({ check }) => check === "locks") && findings.some(({ check }) => check === "tools"));
});

Deno.test("a diagnosis as text: a line for each check, findings with their remedies below, no line of prose too long", async () => {
  const { machine, group, device } = healthyMachine();
  assertMatch(
    diagnosisText(await diagnose(machine)),
    /^✓ tools +lvm 2\.03\.16, 31 of 31 programs\n(?:✓ .*\n){9}\nNo problems found\.$/,
  );
  group.exported = true;
  leaveMetadataFree(group, 6_200n);
  machine.host.suspended.add(device);
  machine.host.missing.add("modinfo");
  const text = diagnosisText(await diagnose(machine));
  assertMatch(text, /\n✗ groups +data \(.*\n {4}✗ data: it is exported: no host uses it\n {6}→ vgimport data\n/);
  assertMatch(text, /\n2 errors, 1 warning, 1 note\.$/);
  const prose = text.split("\n").filter((line) => !line.includes("→"));
  assertEquals(prose.filter((line) => line.length > 100), []);
});

Deno.test("a diagnosis shows no control characters of names, and a remedy names a mount as one word for a shell", async () => {
  const { machine } = healthyMachine();
  const source = `/dev/mapper/data-vol--${"9".repeat(32)}`;
  machine.mounts.push({ ...machine.mounts[1]!, target: "/it's\n→ x; \u001b[2J\u009b", source });
  const diagnosis = await diagnose(machine);
  const text = diagnosisText(diagnosis);
  assertMatch(text, /\n {6}→ umount '\/it'\\''s\ufffd→ x; \ufffd\[2J\ufffd'\n/);
  for (const each of [text, diagnosisJson(diagnosis)]) assertEquals(/[^\n\P{Cc}]/u.test(each), false);
  assertEquals(JSON.parse(diagnosisJson(diagnosis)).findings, diagnosis.findings);
});

Deno.test("a diagnosis as JSON has the level, the checks and the findings", async () => {
  const { machine, group } = healthyMachine();
  group.exported = true;
  const { level, checks, findings } = JSON.parse(diagnosisJson(await diagnose(machine)));
  assertEquals([level, checks.length], ["error", CHECK_NAMES.length]);
  assertEquals(findings, [{
    check: "groups",
    level: "error",
    subject: "data",
    message: "it is exported: no host uses it",
    remedy: "vgimport data",
  }]);
});

Deno.test("examine() reports the volumes whose images are being synchronized", async () => {
  const { machine } = healthyMachine();
  const group = machine.addGroup("fast", 1n << 30n, 4n << 20n, 2);
  const [volume, format] = [volumeIdOf("mirrored"), { state: "raw" } as const];
  const tags = volumeTags(DRIVER, { id: volume, format, mkfsOptions: [], shared: true, erase: "zero" });
  const layout = ["--type", "raid1", "--mirrors", "1", ...tags.flatMap((tag) => ["--addtag", tag])];
  const args = ["lvcreate", "--yes", "--size", `${64 << 20}b`, "--name", volumeLvName(volume), ...layout, "fast"];
  await machine.run({ program: "lvm", args, mutates: true });
  const findings = async () => (await diagnose(machine)).findings.filter(({ subject }) => subject.startsWith("fast/"));
  endSync(group);
  assertEquals(await findings(), []);
  Object.assign(group.lvs[0]!.raid!, { action: "resync", syncPercent: 25 });
  const [finding, ...others] = await findings();
  assertEquals([finding?.check, finding?.level, others], ["groups", "info", []]);
  assertMatch(finding!.message, /^raid1: its images are being synchronized/);
});
