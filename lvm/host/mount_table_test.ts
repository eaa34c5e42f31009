import { assert, assertEquals, assertRejects } from "@std/assert";
import table from "../../tests/fixtures/mountinfo.txt" with { type: "text" };
import { StorageError } from "../../base/error.ts";
import type { Command, Exec } from "../exec.ts";
import { openMountTable, readStable } from "./mount_table.ts";
import { readMounts } from "./mounts.ts";

const OWN_MOUNT = (path: string) => `99 28 0:20 /7/mountinfo ${path} rw shared:9 - proc proc rw\n`;

/** Creates a directory, and an exec whose mount puts a table into the file instead of mounting it. */
async function setUp(write = (path: string): string => table + OWN_MOUNT(path)) {
  const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-mount-table-" }));
  const commands: string[] = [];
  let file: Deno.FsFile | undefined;
  const exec: Exec = {
    run: async ({ program, args }: Command) => {
      const path = args.at(-1)!;
      commands.push([program, ...args].join(" ").replaceAll(folder, "DIR").replaceAll(`${Deno.pid}`, "PID"));
      if (program === "mount") {
        await Deno.writeTextFile(path, write(path));
        file = await Deno.open(path, { write: true });
      }
      return { code: 0, stdout: "", stderr: "" };
    },
    idle: () => Promise.resolve(),
  };
  const failures: unknown[] = [];
  return {
    ...{ folder, commands, exec, failures },
    open: () => openMountTable(exec, `${folder}/own`, (error) => failures.push(error)),
    /** Replaces the table, also when its file is removed. */
    replace: async (text: string) => {
      await file!.truncate();
      await file!.seek(0, Deno.SeekMode.Start);
      await file!.write(new TextEncoder().encode(text));
    },
    async [Symbol.asyncDispose]() {
      file?.close();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

/** Ends the use of a table: a failure closes its file. */
async function end(s: Awaited<ReturnType<typeof setUp>>, read: () => Promise<string | undefined>): Promise<void> {
  await s.replace("");
  assertEquals(await read(), undefined);
}

Deno.test("openMountTable() removes what a driver that was killed left, and nothing else of a similar name", async () => {
  await using s = await setUp();
  await Deno.mkdir(`${s.folder}/own`);
  for (const name of ["mountinfo.12", "mountinfo.old", "mountinfo.12.bak"]) {
    await Deno.writeTextFile(`${s.folder}/own/${name}`, "");
  }
  const read = await s.open();
  assertEquals(s.commands[0], "umount --lazy DIR/own/mountinfo.12");
  assertEquals([...Deno.readDirSync(`${s.folder}/own`)].map(({ name }) => name).sort(), [
    "mountinfo.12.bak",
    "mountinfo.old",
  ]);
  await end(s, read);
});

Deno.test("openMountTable() mounts the table of this process for a moment, and leaves nothing", async () => {
  await using s = await setUp();
  const read = await s.open();
  assertEquals(s.commands, [
    "mount -o bind /proc/PID/mountinfo DIR/own/mountinfo.PID",
    "umount --lazy DIR/own/mountinfo.PID",
  ]);
  assertEquals([...Deno.readDirSync(`${s.folder}/own`)], []);
  assert((await read())!.startsWith(table));
  await s.replace(table);
  assertEquals(await read(), table, "each read is a new one");
  assertEquals(await Promise.all([read(), read(), read()]), [table, table, table]);
  await end(s, read);
});

Deno.test("openMountTable() removes what processes left that were killed", async () => {
  await using s = await setUp();
  await Deno.mkdir(`${s.folder}/own`);
  for (const name of ["mountinfo.1", `mountinfo.${Deno.pid}`, "csi.sock"]) {
    await Deno.writeTextFile(`${s.folder}/own/${name}`, "");
  }
  const read = await s.open();
  assertEquals(s.commands.slice(0, -2).toSorted(), [
    "umount --lazy DIR/own/mountinfo.1",
    "umount --lazy DIR/own/mountinfo.PID",
  ]);
  assertEquals([...Deno.readDirSync(`${s.folder}/own`)].map(({ name }) => name), ["csi.sock"]);
  await end(s, read);
});

Deno.test("openMountTable() refuses a table without its own mount, as of another namespace or of no process", async () => {
  for (const text of [table, ""]) {
    await using s = await setUp(() => text);
    await assertRejects(s.open, StorageError);
    assertEquals([s.commands.length, [...Deno.readDirSync(`${s.folder}/own`)]], [2, []]);
  }
});

Deno.test("a table that is empty, cut off or not readable is none, and never read again", async () => {
  for (const text of ["", table.slice(0, -1)]) {
    await using s = await setUp();
    const read = await s.open();
    await s.replace(text);
    assertEquals([await read(), s.failures.length], [undefined, 1]);
    await s.replace(table);
    assertEquals([await read(), s.failures.length], [undefined, 1]);
  }
});

Deno.test("readMounts() lets findmnt list what it cannot parse", async () => {
  const commands: string[] = [];
  const exec = (text: string | undefined): Exec => ({
    run: ({ program }) => {
      commands.push(program);
      return Promise.resolve({ code: 0, stdout: '{"filesystems":[]}', stderr: "" });
    },
    idle: () => Promise.resolve(),
    readMountTable: () => Promise.resolve(text),
  });
  assertEquals([(await readMounts(exec(table))).length, commands.length], [9, 0]);
  for (const [index, text] of [undefined, "", "\n", table.slice(0, -9), table.replaceAll("vda", "dm-1")].entries()) {
    await readMounts(exec(text));
    assertEquals(commands.length, index + 1);
  }
});

/** A file with another content for each read from its start, of which each read(2) returns a part. */
function changingFile(contents: readonly string[]) {
  let reads = 0;
  let rest = new Uint8Array();
  return {
    reads: () => reads,
    seek: () => {
      rest = new TextEncoder().encode(contents[Math.min(reads++, contents.length - 1)]);
      return Promise.resolve(0);
    },
    read: (buffer: Uint8Array) => {
      if (rest.length === 0) return Promise.resolve(null);
      const bytes = Math.min(3, rest.length);
      buffer.set(rest.subarray(0, bytes));
      rest = rest.subarray(bytes);
      return Promise.resolve(bytes);
    },
  };
}

Deno.test("readStable() returns a table that two reads in a row have shown, and none that changes all the time", async () => {
  const stable = changingFile(["ä\nb\n", "ä\nb\nc\n", "b\nä\n", "b\nä\n", "d\n"]);
  assertEquals([await readStable(stable), stable.reads()], ["b\nä\n", 4]);
  const changing = changingFile(Array.from({ length: 99 }, (_, index) => `${index}\n`));
  assertEquals([await readStable(changing), changing.reads()], [undefined, 8]);
  await assertRejects(() => readStable(changingFile(["a\n", ""])), StorageError, "not complete");
});
