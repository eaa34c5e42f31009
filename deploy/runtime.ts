import { join } from "@std/path";
import { run } from "./process.ts";

/** The machines that the driver is made for, by the kernel's names for them. */
export const ARCHITECTURES = ["x86_64", "aarch64"] as const;

/** One of {@linkcode ARCHITECTURES}. */
export type Architecture = typeof ARCHITECTURES[number];

/** The version of Deno that the driver runs on. */
export const DENO_VERSION = "2.9.3";

/** The npm package with the deno binary for a kind of machine. */
interface RuntimePackage {
  readonly name: string;
  /** The checksum of the package, beside the registry's own word, which npm goes by. */
  readonly integrity?: string;
  /** The machine in the head of the binary: ELF's e_machine. */
  readonly machine: number;
}

/** What the driver runs on, as it is in the artifact. */
export interface Runtime {
  readonly name: "deno" | "denort";
  readonly version: string;
  /** Where it comes from, as a package URL. */
  readonly purl: string;
  /** Its checksum, in hexadecimal, where it is there as it came. */
  readonly sha256?: string;
}

/** Where the deno binaries come from. */
const RUNTIME_PACKAGES: Readonly<Record<Architecture, RuntimePackage>> = {
  x86_64: {
    name: "@deno/linux-x64-glibc",
    integrity: "sha512-HSChBN7EkeErbDYVVu16dhLVHVIe/U+8eOAedrsuOsSThE+4Ln+IOfI+UnNU09pqnWc/ZMDI+fVRuAmKX/PRaw==",
    machine: 62,
  },
  aarch64: { name: "@deno/linux-arm64-glibc", machine: 183 },
};

/**
 * The path of the deno binary for a kind of machine: the running one where it will do, else one that npm fetches into `folder`.
 *
 * @throws {Error} when it cannot be fetched, or is not what it should be
 */
export async function denoBinary(arch: Architecture, folder: string): Promise<string> {
  if (arch === Deno.build.arch && Deno.version.deno === DENO_VERSION) return Deno.execPath();
  const { name, integrity } = RUNTIME_PACKAGES[arch];
  const action = `fetch deno ${DENO_VERSION} for ${arch}`;
  const packed = await run(action, "npm", [
    "pack",
    "--loglevel=error",
    "--pack-destination",
    folder,
    `${name}@${DENO_VERSION}`,
  ]);
  const archive = join(folder, packed.trim());
  if (integrity !== undefined) await requireIntegrity(await Deno.readFile(archive), integrity, action);
  await run(action, "tar", ["-C", folder, "-xzf", archive, "package/deno"]);
  const binary = join(folder, "package/deno");
  requireMachine(await Deno.readFile(binary), arch, action);
  return binary;
}

/** @throws {Error} when the bytes do not have this checksum, written as in npm's lock files. */
export async function requireIntegrity(
  bytes: Uint8Array<ArrayBuffer>,
  integrity: string,
  action: string,
): Promise<void> {
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-512", bytes)).toBase64();
  if (`sha512-${sum}` !== integrity) throw new Error(`${action}: its checksum is sha512-${sum}, not ${integrity}`);
}

/** @throws {Error} when the bytes are no program for this kind of machine. */
export function requireMachine(bytes: Uint8Array<ArrayBuffer>, arch: Architecture, action: string): void {
  const isElf = bytes.length > 20 && new TextDecoder().decode(bytes.subarray(0, 4)) === "\x7fELF";
  const machine = isElf ? new DataView(bytes.buffer, bytes.byteOffset).getUint16(18, true) : undefined;
  if (machine === RUNTIME_PACKAGES[arch].machine) return;
  throw new Error(`${action}: what came is no program for ${arch}`);
}

/** The deno binary as a part of the artifact. */
export function denoRuntime(arch: Architecture, sha256: string): Runtime {
  const purl = `pkg:npm/${RUNTIME_PACKAGES[arch].name.replace("@", "%40")}@${DENO_VERSION}`;
  return { name: "deno", version: DENO_VERSION, purl, sha256 };
}

/** The runtime of `deno compile` as a part of the artifact. */
export function denortRuntime(): Runtime {
  return { name: "denort", version: DENO_VERSION, purl: `pkg:github/denoland/deno@v${DENO_VERSION}` };
}
