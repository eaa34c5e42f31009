import { join } from "@std/path";
import { run } from "./process.ts";

/** Architectures that the driver is built for, as the kernel names them. */
export const ARCHITECTURES = ["x86_64", "aarch64"] as const;

/** One of {@linkcode ARCHITECTURES}. */
export type Architecture = typeof ARCHITECTURES[number];

/** What Debian and container images call an architecture. */
export const PLATFORM_NAMES = { x86_64: "amd64", aarch64: "arm64" } as const satisfies Record<Architecture, string>;

/** Version of Deno that the driver runs on. */
export const DENO_VERSION = "2.9.6";

/** The npm package with the deno binary for an architecture. */
interface RuntimePackage {
  readonly name: string;
  /** Checksum of the package, checked in addition to npm's own check. */
  readonly integrity: string;
  /** Machine in the ELF header of the binary (e_machine). */
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
const RUNTIME_PACKAGES: Readonly<Record<Architecture, RuntimePackage>> = {
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
};

/**
 * Returns the path of the deno binary for an architecture: the running one if it fits, or one that npm downloads to `folder`.
 *
 * @throws {Error} when the download fails, or has another checksum or architecture
 */
export async function denoBinary(arch: Architecture, folder: string, version: string = DENO_VERSION): Promise<string> {
  if (arch === Deno.build.arch && Deno.version.deno === version) return Deno.execPath();
  return await fetchDeno(arch, folder, version);
}

/**
 * Fetches the deno binary of npm's package for an architecture to `folder`, also where the running one would fit: there are
 * others of the same version. npm checks the package's checksum.
 *
 * @returns the path of the binary
 * @throws {Error} when the download fails, or has another checksum or architecture
 */
export async function fetchDeno(arch: Architecture, folder: string, version: string = DENO_VERSION): Promise<string> {
  const { name, integrity } = RUNTIME_PACKAGES[arch];
  const action = `fetch deno ${version} for ${arch}`;
  const packed = await run(action, "npm", [
    "pack",
    "--loglevel=error",
    "--pack-destination",
    folder,
    `${name}@${version}`,
  ]);
  const archive = join(folder, packed.trim());
  if (version === DENO_VERSION) await requireIntegrity(await Deno.readFile(archive), integrity, action);
  await run(action, "tar", ["-C", folder, "-xzf", archive, "package/deno"]);
  const binary = join(folder, "package/deno");
  requireMachine(await Deno.readFile(binary), arch, action);
  return binary;
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

/** Checks that the bytes are a program for the architecture. @throws {Error} when they are not */
export function requireMachine(bytes: Uint8Array<ArrayBuffer>, arch: Architecture, action: string): void {
  if (!isProgram(bytes, arch)) throw new Error(`${action}: what came is no program for ${arch}`);
}

/** Reports whether the bytes are a program for the architecture. */
export function isProgram(bytes: Uint8Array<ArrayBuffer>, arch: Architecture): boolean {
  const isElf = bytes.length > 20 && new TextDecoder().decode(bytes.subarray(0, 4)) === "\x7fELF";
  const machine = isElf ? new DataView(bytes.buffer, bytes.byteOffset).getUint16(18, true) : undefined;
  return machine === RUNTIME_PACKAGES[arch].machine;
}

/** Returns the deno binary as a part of the artifact. */
export function denoRuntime(arch: Architecture, sha256: string, version: string = DENO_VERSION): Runtime {
  const purl = `pkg:npm/${RUNTIME_PACKAGES[arch].name.replace("@", "%40")}@${version}`;
  return { name: "deno", version, purl, sha256 };
}

/** Returns the runtime of `deno compile` as a part of the artifact. */
export function denortRuntime(): Runtime {
  const { deno: version } = Deno.version; // it is that of the Deno that compiles
  return { name: "denort", version, purl: `pkg:github/denoland/deno@v${version}` };
}
