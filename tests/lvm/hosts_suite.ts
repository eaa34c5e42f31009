/**
 * Hosts that are not a usual Debian, over real LVM: with a devices file, with a system id, and with a read-only directory of
 * LVM's settings. `deno test` runs this in the guest, as one bundle.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { examine } from "../../lvm/doctor/doctor.ts";
import type { Exec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { exactMatcher } from "../../lvm/model/groups.ts";
import { openExec, type OpenExecOptions } from "../../lvm/host/open_exec.ts";
import { run } from "../demo/command.ts";

const [LISTED, UNLISTED] = (Deno.env.get("DATA_DISKS") ?? "").split(" ") as [string, string];
const LOCAL_CONF = "/etc/lvm/lvmlocal.conf";

/** As in a container of the agent. */
const CONTAINER = "activation/udev_sync=0 activation/udev_rules=0 activation/monitoring=0";

const lvm = (action: string, ...args: string[]) => run(action, "lvm", args);

await lvm("make the first group", "vgcreate", "--yes", "listed", LISTED);
await lvm("make the second group", "vgcreate", "--yes", "unlisted", UNLISTED);

function openAgentExec(options: Partial<OpenExecOptions> = {}): Promise<Exec> {
  return openExec({ lvmConfig: CONTAINER, ...options });
}

async function groupsSeenBy(exec: Exec): Promise<string[]> {
  return (await new Lvm(exec).report()).map(({ name }) => name).sort();
}

/** Adds settings to those of the host. @returns what takes them back */
async function addSettings(text: string): Promise<AsyncDisposable> {
  const before = await Deno.readTextFile(LOCAL_CONF);
  await Deno.writeTextFile(LOCAL_CONF, `${before}${text}\n`);
  return { [Symbol.asyncDispose]: () => Deno.writeTextFile(LOCAL_CONF, before) };
}

/** Makes a devices file with one of the disks. @returns what removes it */
async function makeDevicesFile(name: string): Promise<AsyncDisposable> {
  const config = `devices/use_devicesfile=1 devices/devicesfile="${name}"`;
  await lvm("list the disk", "lvmdevices", "--config", config, "--adddev", LISTED);
  return { [Symbol.asyncDispose]: () => Deno.remove(`/etc/lvm/devices/${name}`) };
}

Deno.test("LVM of an agent uses the host's devices file, unless the host's settings say whether one is used", async () => {
  assertEquals(
    await groupsSeenBy(await openAgentExec({ devicesFile: "auto" })),
    ["listed", "unlisted"],
    "there is none",
  );
  await using _file = await makeDevicesFile("system.devices");
  assertEquals(await groupsSeenBy(await openAgentExec({ devicesFile: "auto" })), ["listed"]);
  assertEquals(await groupsSeenBy(await openAgentExec()), ["listed", "unlisted"], "this LVM uses none by default");
  {
    await using _settings = await addSettings("devices/use_devicesfile = 0");
    assertEquals(await groupsSeenBy(await openAgentExec({ devicesFile: "auto" })), ["listed", "unlisted"]);
  }
  await using _other = await makeDevicesFile("denolith.devices");
  await using _settings = await addSettings("devices/use_devicesfile = 0");
  assertEquals(await groupsSeenBy(await openAgentExec({ devicesFile: "denolith.devices" })), ["listed"]);
});

Deno.test("a report is read whatever the host's settings of logs and reports are", async () => {
  await lvm(
    "make an LV with tags",
    "lvcreate",
    "-y",
    "-n",
    "tagged",
    "-L",
    "4m",
    "--addtag",
    "a",
    "--addtag",
    "b",
    "listed",
  );
  try {
    const before = await new Lvm(await openAgentExec()).report();
    const settings = [
      ...["log/report_command_log = 1", 'log { command_names = 1\n prefix = "## " }', "log/verbose = 1"],
      ...["report/compact_output = 1", "report/prefixes = 1", 'report/list_item_separator = " "'],
      ...["report/mark_hidden_devices = 0", "report/two_word_unknown_device = 1", 'report/time_format = "%Y"'],
      "backup { archive = 1\n retain_min = 1 }",
    ];
    for (const setting of settings) {
      await using _settings = await addSettings(setting);
      assertEquals(await new Lvm(await openAgentExec()).report(), before, setting);
    }
  } finally {
    await lvm("remove the LV", "lvremove", "-y", "listed/tagged");
  }
});

Deno.test("the doctor names a disk that is not in the devices file, and the command that adds it", async () => {
  await using _file = await makeDevicesFile("system.devices");
  const exec = await openAgentExec({ devicesFile: "auto" });
  const { findings } = await examine({ exec, driver: "test.denolith.dev", groups: exactMatcher("listed") });
  const hidden = findings.filter(({ check, subject }) => check === "filters" && subject === UNLISTED);
  assertEquals(hidden.map(({ level, remedy }) => [level, remedy]), [[
    "warning",
    `lvm lvmdevices --adddev ${UNLISTED}`,
  ]]);
});

Deno.test("where LVM's settings are read-only, LVM changes nothing, unless its archives are elsewhere", async () => {
  const archives = await Deno.makeTempDir({ prefix: "denolith-archives-" });
  await run("bind the settings", "mount", ["--bind", "/etc/lvm", "/etc/lvm"]);
  await run("make them read-only", "mount", ["-o", "remount,bind,ro", "/etc/lvm"]);
  try {
    const change = async (exec: Exec) =>
      (await exec.run({ program: "lvm", args: ["vgchange", "--addtag", "tried", "listed"], mutates: true })).code;
    const on = `${CONTAINER} backup/archive=1 backup/backup=1`;
    const exec = await openAgentExec({ lvmConfig: on });
    assertEquals(await change(exec), 5);
    const { findings } = await examine({ exec, driver: "test.denolith.dev", groups: exactMatcher("listed") });
    const archive = findings.find(({ subject }) => subject === "/etc/lvm/archive");
    assertEquals([archive?.check, archive?.level], ["filters", "error"]);

    const elsewhere = `backup/backup_dir="${archives}/backup" backup/archive_dir="${archives}/archive"`;
    assertEquals(await change(await openAgentExec({ lvmConfig: `${on} ${elsewhere}` })), 0);
    assert([...Deno.readDirSync(`${archives}/archive`)].some(({ name }) => /^listed_\d+-.*\.vg$/.test(name)));
    await lvm(
      "remove the tag",
      "vgchange",
      "--config",
      "backup/archive=0 backup/backup=0",
      "--deltag",
      "tried",
      "listed",
    );
  } finally {
    await run("take the mount off", "umount", ["/etc/lvm"]);
    await Deno.remove(archives, { recursive: true });
  }
});

Deno.test("a group with a system id is used with that id alone", async () => {
  const isOf = (id: string) => `global/system_id_source="lvmlocal" local/system_id="${id}"`;
  await lvm(
    "give the group to a host",
    "vgchange",
    "--yes",
    "--config",
    isOf("worker-1"),
    "--systemid",
    "worker-1",
    "listed",
  );
  try {
    const wrong = await openAgentExec({ lvmConfig: `${CONTAINER} global/system_id_source="uname"` });
    const { findings } = await examine({ exec: wrong, driver: "test.denolith.dev", groups: exactMatcher("listed") });
    assertMatch(findings.find(({ check, subject }) => check === "groups" && subject === "listed")!.message, /worker-1/);
    const right = await openAgentExec({ lvmConfig: `${CONTAINER} ${isOf("worker-1")}` });
    const args = ["lvcreate", "--yes", "--name", "tried", "--size", "4m", "listed"];
    assertEquals((await wrong.run({ program: "lvm", args, mutates: true })).code, 5);
    assertEquals((await right.run({ program: "lvm", args, mutates: true })).code, 0);
    assertEquals(
      (await right.run({ program: "lvm", args: ["lvremove", "-y", "listed/tried"], mutates: true })).code,
      0,
    );
  } finally {
    await lvm("take it back", "vgchange", "--yes", "--config", isOf("worker-1"), "--systemid", "", "listed");
  }
});
