import { assertEquals } from "@std/assert";
import { join } from "@std/path";
import { run } from "../process.ts";

const FOLDER = new URL("../package/", import.meta.url).pathname;

/** Runs a script of the packages on a system with a systemd that refuses all. @returns the commands it was asked for */
async function commandsOf(name: string, argument: string): Promise<string[]> {
  const temp = await Deno.makeTempDir();
  try {
    const log = join(temp, "log");
    await Deno.writeTextFile(log, "");
    await Deno.writeTextFile(join(temp, "systemctl"), `#!/bin/sh\necho "$*" >> ${log}\nexit 1\n`, { mode: 0o755 });
    const script = await Deno.readTextFile(join(FOLDER, `${name}.sh`));
    await Deno.writeTextFile(join(temp, name), script.replaceAll("/run/systemd/system", temp));
    const variables = [`PATH=${temp}:${Deno.env.get("PATH")}`, `DPKG_ROOT=${temp}`];
    await run(name, "env", [...variables, "sh", join(temp, name), argument]);
    return (await Deno.readTextFile(log)).split("\n").slice(0, -1);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
}

Deno.test.each([
  ["postinstall", "configure", ["daemon-reload", "try-restart denolith.service"]],
  ["postinstall", "2", ["daemon-reload", "try-restart denolith.service"]],
  ["preremove", "remove", ["disable --now denolith.service"]],
  ["preremove", "0", ["disable --now denolith.service"]],
  ["preremove", "upgrade", []],
  ["preremove", "1", []],
  ["postremove", "remove", ["daemon-reload"]],
  ["postremove", "upgrade", []],
])(
  "%s.sh %s leaves no package half configured when systemd refuses",
  async (name: string, argument: string, commands: readonly string[]) => {
    assertEquals(await commandsOf(name, argument), [...commands]);
  },
);
