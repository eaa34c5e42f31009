import { join } from "@std/path";
import { cacheKey, ensureCached } from "./cache.ts";
import { debianMirror, ensureTools } from "./debian.ts";
import { run } from "./process.ts";
import { timedLog } from "./progress.ts";
import type { TempFolder } from "./temp_folder.ts";
import ptraceSource from "./uml/ptrace.c" with { type: "text" };

/** A kernel of user-mode Linux that runs on this machine. */
export interface UmlKernel {
  /** The path of the program. */
  readonly program: string;
  /** The folder that the program must run in. */
  readonly folder: string;
  /** Its variables: the C library and what is preloaded. */
  readonly env: Readonly<Record<string, string>>;
  /** Parameters of this kernel, beside those of the machine. */
  readonly parameters: readonly string[];
  /** The folder with a folder of modules for each version. */
  readonly modules: string;
}

/**
 * The release of Debian that the fast kernel comes from. Kernels since 6.16 intercept the system calls of a guest's processes
 * by seccomp: they start programs three times as fast as those that use ptrace, such as the one of Debian 12 or 13.
 */
const RELEASE = "forky";

/** To be raised when the way in which the kernel is put together changes. */
const FORMAT = 1;

/** The longest time that a kernel needs to boot to its first process, in seconds. */
const BOOT_SECONDS = 60;

/** Where Debian's packages have these files. */
const KERNEL_FILE = "usr/bin/linux.uml";
const MODULES_FOLDER = "usr/lib/uml/modules";
const LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu";
const LOADER = "/lib64/ld-linux-x86-64.so.2";

/** The name of the loader for the kernel, in the folder that it runs in. */
const OWN_LOADER = "./ld.so";

/**
 * Returns the kernel for guests. It is fetched on first use and kept in the cache folder. Where the fast one cannot be had or
 * does not boot, it is the kernel of this machine's Debian, and the fast one is tried again the next time.
 *
 * @throws {Error} when neither can be installed
 */
export async function ensureUmlKernel(log: (line: string) => void): Promise<UmlKernel> {
  try {
    const name = `uml-kernel-${await cacheKey(JSON.stringify([FORMAT, RELEASE]))}`;
    return fastKernel(await ensureCached(name, log, (temp, into) => build(temp, into, log)));
  } catch (error) {
    log(`user-mode Linux of Debian ${RELEASE} does not run here; this machine's does, more slowly: ${error}`);
    return await machineKernel(log);
  }
}

/** Fetches the fast kernel, and makes sure that this machine runs it. */
async function build(temp: TempFolder, into: string, log: (line: string) => void): Promise<void> {
  await fetchKernel(temp, into, timedLog(log));
  await requireBoot(fastKernel(into));
}

function fastKernel(folder: string): UmlKernel {
  return {
    program: join(folder, "linux"),
    folder,
    env: { LD_LIBRARY_PATH: folder },
    parameters: ["seccomp=on"],
    modules: join(folder, "modules"),
  };
}

/** Installs the kernel of this machine's Debian, and compiles the library that it needs. */
async function machineKernel(log: (line: string) => void): Promise<UmlKernel> {
  await ensureTools([
    { program: "linux.uml", packages: ["user-mode-linux"] },
    { program: "cc", packages: ["gcc", "libc6-dev"] },
  ], log);
  const folder = await ensureCached(`uml-${await cacheKey(ptraceSource)}`, log, async (temp, into) => {
    const source = temp.file("ptrace.c");
    await Deno.writeTextFile(source, ptraceSource);
    const options = ["-O2", "-shared", "-fPIC", "-o", join(into, "ptrace.so"), source];
    await run("compile the library of user-mode Linux", "cc", options, { guardedBy: temp });
  });
  return {
    program: `/${KERNEL_FILE}`,
    folder,
    env: { LD_PRELOAD: join(folder, "ptrace.so") },
    parameters: [],
    modules: `/${MODULES_FOLDER}`,
  };
}

/**
 * Fetches the packages of the kernel and of the C library that it needs, by apt with lists of its own, so that this machine's
 * packages stay as they are.
 */
async function fetchKernel(temp: TempFolder, into: string, step: (line: string) => void): Promise<void> {
  const mirror = await debianMirror();
  if (mirror === undefined) throw new Error("find Debian's packages: apt has no mirror");
  const [packages, unpacked] = [temp.file("packages"), temp.file("unpacked")];
  for (const folder of ["lists/partial", "cache/archives/partial"]) {
    await Deno.mkdir(join(packages, folder), { recursive: true });
  }
  const sources = join(packages, "sources.list");
  await Deno.writeTextFile(sources, `deb [arch=amd64] ${mirror} ${RELEASE} main\n`);
  const options = [
    "-qq",
    ...["-o", `Dir::Etc::SourceList=${sources}`, "-o", "Dir::Etc::SourceParts=/dev/null"],
    ...["-o", `Dir::State::Lists=${join(packages, "lists")}`, "-o", `Dir::Cache=${join(packages, "cache")}`],
    ...["-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root"],
  ];
  step(`user-mode Linux: fetching that of Debian ${RELEASE}, once`);
  const apt = (action: string, args: string[]) =>
    run(action, "apt-get", [...options, ...args], { cwd: packages, guardedBy: temp });
  await apt(`read the package lists of Debian ${RELEASE}`, ["update"]);
  await apt(`fetch user-mode Linux of Debian ${RELEASE}`, ["download", "user-mode-linux", "libc6"]);
  for await (const { name } of Deno.readDir(packages)) {
    if (!name.endsWith(".deb")) continue;
    step(`user-mode Linux: ${name}`);
    await run(`unpack ${name}`, "dpkg-deb", ["-x", join(packages, name), unpacked], { guardedBy: temp });
  }
  await Deno.rename(join(unpacked, MODULES_FOLDER), join(into, "modules"));
  await Deno.copyFile(join(unpacked, LIBRARY_FOLDER, "ld-linux-x86-64.so.2"), join(into, OWN_LOADER));
  await Deno.copyFile(join(unpacked, LIBRARY_FOLDER, "libc.so.6"), join(into, "libc.so.6"));
  const kernel = await Deno.readFile(join(unpacked, KERNEL_FILE));
  await Deno.writeFile(join(into, "linux"), withLoader(kernel, OWN_LOADER), { mode: 0o755 });
}

/**
 * Returns a program that is started by another dynamic loader. This machine's is that of an older C library, and the kernel
 * does not boot when the loader is called as a program.
 *
 * @throws {Error} when the program does not name its loader as expected
 */
export function withLoader(program: Uint8Array<ArrayBuffer>, loader: string): Uint8Array<ArrayBuffer> {
  const expected = new TextEncoder().encode(`${LOADER}\0`);
  const at = program.findIndex((_, start) => expected.every((byte, index) => program[start + index] === byte));
  if (at < 0 || loader.length > LOADER.length) {
    throw new Error(`set the loader of the kernel to ${loader}: it does not name ${LOADER}`);
  }
  const changed = program.slice();
  changed.fill(0, at, at + expected.length);
  changed.set(new TextEncoder().encode(loader), at);
  return changed;
}

/** Returns variables as env takes them. The programs that start the kernel must not see them. */
export function assignments(env: Readonly<Record<string, string>>): string[] {
  return Object.entries(env).map(([name, value]) => `${name}=${value}`);
}

/**
 * Boots a kernel with this machine's files, to its first process.
 *
 * @throws {Error} when that process does not start
 */
async function requireBoot({ program, folder, env, parameters }: UmlKernel): Promise<void> {
  const says = "the first process runs";
  const args = [
    ...["--kill-after=5", String(BOOT_SECONDS), "env", ...assignments(env), program, ...parameters],
    ...["mem=128M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "panic=-1"],
    ...["con=null", "con0=null,fd:1", "init=/bin/sh", "--", "-c", `"echo ${says}"`],
  ];
  const { stdout, stderr } = await new Deno.Command("timeout", { args, cwd: folder, stdin: "null" }).output();
  const [console, errors] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  if (console!.includes(says)) return;
  throw new Error(`boot ${program}: ${errors!.trim()}; its console ends with: ${console!.slice(-400)}`);
}
