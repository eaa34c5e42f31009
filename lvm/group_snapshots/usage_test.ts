import { assertEquals } from "@std/assert";
import type { Command } from "../exec.ts";
import { readDeviceUses } from "./usage.ts";

Deno.test("readDeviceUses() asks for whole paths, and returns what is on each device", async () => {
  const blockdevices = [
    { name: "/dev/mapper/a-one", mountpoint: "[SWAP]" },
    { name: "/dev/mapper/a-two", mountpoint: null, children: [{ name: "/dev/mapper/crypt", mountpoint: "/data" }] },
  ];
  const commands: string[] = [];
  const run = ({ program, args }: Command) => {
    commands.push([program, ...args].join(" "));
    return Promise.resolve({ code: 0, stdout: JSON.stringify({ blockdevices }), stderr: "" });
  };
  const uses = await readDeviceUses({ run, idle: () => Promise.resolve() }, ["/dev/mapper/a-one", "/dev/mapper/a-two"]);
  assertEquals(commands, ["lsblk --json --paths --output NAME,MOUNTPOINT /dev/mapper/a-one /dev/mapper/a-two"]);
  assertEquals(uses, [
    { path: "/dev/mapper/a-one", mountPoint: "[SWAP]", holders: [] },
    { path: "/dev/mapper/a-two", holders: ["/dev/mapper/crypt"] },
  ]);
});
