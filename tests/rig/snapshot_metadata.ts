import { join } from "@std/path";
import { cacheKey, ensureCached } from "./cache.ts";
import { buildGo, fetchGoModule, type GoModule } from "./go_build.ts";
import { imageArchive } from "./pod_image.ts";

/** The versions of external-snapshot-metadata, and of the module with its client, which it names by an older one. */
const VERSIONS = { sidecar: "1.1.0", client: "1.0.0" } as const;

const MODULE = "github.com/kubernetes-csi/external-snapshot-metadata";

/** The name of the image with external-snapshot-metadata, and with the program that makes backups by its iterator. */
export const SNAPSHOT_METADATA_IMAGE = "rig.denolith.test/csi-snapshot-metadata:1";

/** The paths of the programs in that image. */
export const SNAPSHOT_METADATA_PROGRAMS = { sidecar: "/bin/csi-snapshot-metadata", backup: "/bin/backup" } as const;

const BACKUP = new URL("../cluster/changed_blocks/backup.go", import.meta.url);

/** What is built: the programs, and the image that has them. */
export interface SnapshotMetadata {
  /** The path of external-snapshot-metadata. */
  readonly sidecar: string;
  /** The path of the program that makes backups. */
  readonly backup: string;
  /** The path of the archive of the image. */
  readonly image: string;
}

/**
 * Returns external-snapshot-metadata, which needs no libraries. It is built on first use, in several minutes on two
 * processors, and kept in the cache folder.
 *
 * @param log receives a line for each step, with the seconds since the start
 * @throws {Error} when there is no Go and none can be fetched, or when the build fails
 */
export async function ensureSnapshotMetadata(log: (line: string) => void): Promise<SnapshotMetadata> {
  const module: GoModule = {
    name: `external-snapshot-metadata ${VERSIONS.sidecar}`,
    time: "several minutes",
    require: { [MODULE]: VERSIONS.sidecar, [`${MODULE}/client`]: VERSIONS.client },
    replace: { [`${MODULE}/client`]: VERSIONS.client },
    linkFlags: `-X main.version=v${VERSIONS.sidecar}`,
    packages: [`${MODULE}/cmd/csi-snapshot-metadata`],
    rename: {},
    sources: { backup: await Deno.readTextFile(BACKUP) },
  };
  const key = await cacheKey(JSON.stringify(module));
  const folder = await ensureCached(`csi-snapshot-metadata-${key}`, log, async (temp, into) => {
    const root = join(into, "root");
    await Deno.mkdir(join(root, "bin"), { recursive: true });
    await buildGo(module, { temp, into: join(root, "bin"), log });
    const source = { names: [SNAPSHOT_METADATA_IMAGE], layers: [root], config: {} };
    await imageArchive(temp, join(into, "image.tar"), source);
  });
  const { sidecar, backup } = SNAPSHOT_METADATA_PROGRAMS;
  return {
    sidecar: join(folder, "root", sidecar),
    backup: join(folder, "root", backup),
    image: join(folder, "image.tar"),
  };
}

/**
 * Returns a folder with the CRD of SnapshotMetadataServices. It is fetched on first use, and kept in the cache folder.
 *
 * @throws {Error} when there is no Go and none can be fetched, or when the module cannot be fetched
 */
export async function ensureSnapshotMetadataCrd(log: (line: string) => void): Promise<string> {
  return await ensureCached(`snapshot-metadata-crd-${VERSIONS.client}`, log, async (temp, into) => {
    const crds = join(await fetchGoModule(`${MODULE}/client`, VERSIONS.client, { temp, log }), "config/crd");
    for await (const { name } of Deno.readDir(crds)) await Deno.copyFile(join(crds, name), join(into, name));
  });
}
