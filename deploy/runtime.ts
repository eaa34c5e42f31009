import { join } from "@std/path";
import { run } from "./process.ts";

/** Architectures that the driver is built for, as the kernel names them. */
export const ARCHITECTURES = ["x86_64", "aarch64"] as const;

/** One of {@linkcode ARCHITECTURES}. */
export type Architecture = typeof ARCHITECTURES[number];

/** What Debian and container images call an architecture. */
export const PLATFORM_NAMES = { x86_64: "amd64", aarch64: "arm64" } as const satisfies Record<Architecture, string>;

/** Systems that there is a kubectl plugin for, as Go names them. The driver runs on Linux alone. */
export const SYSTEMS = ["linux", "darwin", "windows"] as const;

/** One of {@linkcode SYSTEMS}. */
export type System = typeof SYSTEMS[number];

/** What a program is built for. */
export interface Target {
  readonly arch: Architecture;
  /** Linux by default. */
  readonly system?: System;
}

/** Version of Deno that the driver runs on. */
export const DENO_VERSION = "2.9.6";

/** The npm package with the deno binary for an architecture. */
interface RuntimePackage {
  readonly name: string;
  /** Checksum of the package, checked in addition to npm's own check. */
  readonly integrity: string;
  /** Machine in the header of the binary: e_machine of ELF, cputype of Mach-O, Machine of COFF. */
  readonly machine: number;
}

/** The runtime in the artifact. */
export interface Runtime {
  readonly name: "deno" | "denort";
  readonly version: string;
  /** Origin, as a package URL. */
  readonly purl: string;
  /** Checksum in hexadecimal, if the artifact contains the runtime unchanged. */
  readonly sha256?: string;
}

/** Packages of the deno binaries. */
const RUNTIME_PACKAGES: Readonly<Record<System, Readonly<Record<Architecture, RuntimePackage>>>> = {
  linux: {
    x86_64: {
      name: "@deno/linux-x64-glibc",
      integrity: "sha512-3md4TKLCuzsLDmfOoC5KN7NAZaxSVkMgm64vg6foD00JBADCpYS2/5QqXfzgnP5ZQz3iLP9vBQJtEgc116OAoQ==",
      machine: 62,
    },
    aarch64: {
      name: "@deno/linux-arm64-glibc",
      integrity: "sha512-poqhoH9B3nYloigEMPT5t8HY+wBeiuea1An5Q7fqgJzP0SYmWsoS/oUnWO/pEiA4ofzIBy1Elt/in58xKtxEoQ==",
      machine: 183,
    },
  },
  darwin: {
    x86_64: {
      name: "@deno/darwin-x64",
      integrity: "sha512-tPi3CWPRdjW1MaWlvWjORE7Ass5SADdWdj1BF1Q1PEdzi+5u/mC5YhmZzniMiPr81PpaFeqjXaLAsfb8lFsZ0Q==",
      machine: 0x0100_0007,
    },
    aarch64: {
      name: "@deno/darwin-arm64",
      integrity: "sha512-V8uO1Aolrl/yvdMb5lOtgtigs8YuZBjrOrgviVMiYkQ0swymFfzkae1wZak4Xi24t7vf7d/eiMb/7ryjjVm+tg==",
      machine: 0x0100_000c,
    },
  },
  windows: {
    x86_64: {
      name: "@deno/win32-x64",
      integrity: "sha512-qRGnmVz/Ea6UWPht/S3xFRK17UZ/ls38DSVfgGB17fpASLxPkksqzWUI/BzL9YYoOknYzfc94mySGyInZu/JXw==",
      machine: 0x8664,
    },
    aarch64: {
      name: "@deno/win32-arm64",
      integrity: "sha512-iHSHs89g2Uy6k0bGHmXkgzTIW8WXImYPpvqRRO/zNsK1/N79PcjvAth1TuQatuIALcLdocstPs/PAYtndbfr0A==",
      machine: 0xaa64,
    },
  },
};

/**
 * Returns the path of the deno binary for an architecture: the running one if it fits, or one that npm downloads to `folder`.
 *
 * @throws {Error} when the download fails, or has another checksum or architecture
 */
export async function denoBinary(arch: Architecture, folder: string, version: string = DENO_VERSION): Promise<string> {
  if (arch === Deno.build.arch && Deno.version.deno === version) return Deno.execPath();
  return await fetchDeno({ arch }, folder, version);
}

/**
 * Fetches the deno binary of npm's package for a target to `folder`, also where the running one would fit: there are
 * others of the same version. npm checks the package's checksum.
 *
 * @returns the path of the binary
 * @throws {Error} when the download fails, or has another checksum or architecture
 */
export async function fetchDeno(target: Target, folder: string, version: string = DENO_VERSION): Promise<string> {
  const { name, integrity } = packageOf(target);
  const action = `fetch deno ${version} for ${nameOf(target)}`;
  const packed = await run(action, "npm", [
    "pack",
    "--loglevel=error",
    "--pack-destination",
    folder,
    `${name}@${version}`,
  ]);
  const archive = join(folder, packed.trim());
  if (version === DENO_VERSION) await requireIntegrity(await Deno.readFile(archive), integrity, action);
  const file = `package/deno${target.system === "windows" ? ".exe" : ""}`;
  await run(action, "tar", ["-C", folder, "-xzf", archive, file]);
  await Deno.remove(archive);
  const binary = join(folder, file);
  requireMachine(await Deno.readFile(binary), target, action);
  return binary;
}

function packageOf({ system = "linux", arch }: Target): RuntimePackage {
  return RUNTIME_PACKAGES[system][arch];
}

/** Returns the name of a target: that of Linux is its architecture alone. */
export function nameOf({ system = "linux", arch }: Target): string {
  return system === "linux" ? arch : `${system} on ${arch}`;
}

/** Checks a checksum, written as in npm's lock files. @throws {Error} when the bytes have another one */
export async function requireIntegrity(
  bytes: Uint8Array<ArrayBuffer>,
  integrity: string,
  action: string,
): Promise<void> {
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-512", bytes)).toBase64();
  if (`sha512-${sum}` !== integrity) throw new Error(`${action}: its checksum is sha512-${sum}, not ${integrity}`);
}

/** Checks that the bytes are a program for the target. @throws {Error} when they are not */
export function requireMachine(bytes: Uint8Array<ArrayBuffer>, target: Target, action: string): void {
  if (!isProgram(bytes, target)) throw new Error(`${action}: what came is no program for ${nameOf(target)}`);
}

/** Reports whether the bytes are a program for the target. */
export function isProgram(bytes: Uint8Array<ArrayBuffer>, target: Target): boolean {
  if (bytes.length < 64) return false;
  const { system = "linux" } = target;
  return machineOf(new DataView(bytes.buffer, bytes.byteOffset, bytes.length), system) === packageOf(target).machine;
}

/** Returns the machine in the header of a system's programs: of ELF, of Mach-O in 64 bits, and of COFF behind a stub for DOS. */
function machineOf(bytes: DataView, system: System): number | undefined {
  const magic = bytes.getUint32(0);
  if (system === "linux") return magic === 0x7f45_4c46 ? bytes.getUint16(18, true) : undefined;
  if (system === "darwin") return magic === 0xcffa_edfe ? bytes.getUint32(4, true) : undefined;
  const header = magic >> 16 === 0x4d5a ? bytes.getUint32(0x3c, true) : bytes.byteLength;
  return header + 6 <= bytes.byteLength && bytes.getUint32(header) === 0x5045_0000
    ? bytes.getUint16(header + 4, true)
    : undefined;
}

/** Returns the deno binary as a part of the artifact. */
export function denoRuntime(target: Target, sha256: string, version: string = DENO_VERSION): Runtime {
  const purl = `pkg:npm/${packageOf(target).name.replace("@", "%40")}@${version}`;
  return { name: "deno", version, purl, sha256 };
}

/** Returns the runtime of `deno compile` as a part of the artifact. */
export function denortRuntime(): Runtime {
  const { deno: version } = Deno.version; // it is that of the Deno that compiles
  return { name: "denort", version, purl: `pkg:github/denoland/deno@v${version}` };
}
