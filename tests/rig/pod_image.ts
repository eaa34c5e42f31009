import { join } from "@std/path";
import { ensureCached } from "./cache.ts";
import { ensureGuestImage } from "./guest_image.ts";
import { run } from "./process.ts";
import type { TempFolder } from "./temp_folder.ts";

/** The image of a pod's sandbox, and the one that tests run: busybox with all its programs. Both sleep by default. */
export const PAUSE_IMAGE = "rig.denolith.test/pause:1";
export const BUSYBOX_IMAGE = "rig.denolith.test/busybox:1";

/**
 * The image that deploy/examples name. The node has Debian's busybox under this name, since it reaches no registry: so the
 * examples run there as they are.
 */
export const EXAMPLE_IMAGE = "docker.io/library/busybox:1.36";

/** The parameters for running an image: the fields of the OCI image configuration's `config`. */
export interface ImageConfig {
  readonly Entrypoint?: readonly string[];
  readonly Cmd?: readonly string[];
  readonly Env?: readonly string[];
  readonly User?: string;
  readonly WorkingDir?: string;
  readonly Labels?: Readonly<Record<string, string>>;
}

/** The parts of an image archive. */
export interface ImageSource {
  /** The names by which pods refer to it. */
  readonly names: readonly string[];
  /** Folders with the files of each layer, the lowest first. Everything belongs to root in the image. */
  readonly layers: readonly string[];
  readonly config: ImageConfig;
}

/** To be raised when the way in which the test image is put together changes. */
const IMAGE_FORMAT = 2;

/** The search path of programs in images that are made here. */
export const IMAGE_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * Makes an image archive as `docker save` does, which `ctr images import` takes. The same files make the same archive. Layers
 * are not compressed: unpacking them is slow in an emulated machine.
 *
 * @param temp where the layers are made
 * @param file the archive to write
 * @throws {Error} when a folder cannot be read, or tar fails
 */
export async function imageArchive(temp: TempFolder, file: string, source: ImageSource): Promise<void> {
  const staging = await Deno.makeTempDir({ dir: temp.path, prefix: "image-" });
  const layers: { file: string; digest: string }[] = [];
  for (const folder of source.layers) {
    const layer = `layer${layers.length}.tar`;
    await tar(temp, folder, join(staging, layer));
    const [digest] = (await run("hash a layer", "sha256sum", [join(staging, layer)])).split(" ");
    layers.push({ file: layer, digest: `sha256:${digest}` });
  }
  const config = JSON.stringify({
    architecture: Deno.build.arch === "aarch64" ? "arm64" : "amd64",
    os: "linux",
    config: source.config,
    rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
  });
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(config))).toHex();
  await Deno.writeTextFile(join(staging, `${digest}.json`), config);
  const manifest = [{ Config: `${digest}.json`, RepoTags: source.names, Layers: layers.map((layer) => layer.file) }];
  await Deno.writeTextFile(join(staging, "manifest.json"), JSON.stringify(manifest));
  await tar(temp, staging, file);
  await Deno.remove(staging, { recursive: true });
}

/** Returns the path of an archive of the images that nodes need, made on first use from the guest's busybox. */
export async function ensureTestImage(log: (line: string) => void): Promise<string> {
  const names = [PAUSE_IMAGE, BUSYBOX_IMAGE, EXAMPLE_IMAGE];
  return await ensureBusyboxImage(log, "pod-image", { names, config: { Cmd: ["/bin/sleep", "2147483647"] } });
}

/**
 * Returns the path of an archive of the image that Kubernetes' own storage tests run, by both names that they have for it: its
 * busybox, and agnhost, which does no more than to wait for commands.
 */
export async function ensureKubernetesTestImage(log: (line: string) => void): Promise<string> {
  const names = ["busybox:1.37.0-1", "agnhost:2.63.0"].map((name) => `registry.k8s.io/e2e-test-images/${name}`);
  const agnhost =
    '#!/bin/sh\n[ "$1" = pause ] && exec /bin/sleep 2147483647\necho "agnhost: $1 is not here" >&2\nexit 1\n';
  return await ensureBusyboxImage(
    log,
    "kubernetes-test-image",
    { names, config: { Entrypoint: ["/agnhost"] } },
    agnhost,
  );
}

/** Returns the path of an archive of an image with the guest's busybox, and with a program `/agnhost` if there is one. */
async function ensureBusyboxImage(
  log: (line: string) => void,
  name: string,
  { names, config }: Omit<ImageSource, "layers">,
  agnhost?: string,
): Promise<string> {
  const guest = await ensureGuestImage(log);
  const [, key] = /guest-(\w+)$/.exec(guest.folder) ?? [];
  const folder = await ensureCached(`${name}-${IMAGE_FORMAT}-${key}`, log, async (temp, into) => {
    const root = temp.file("root");
    for (const name of ["bin", "etc", "data", "tmp"]) await Deno.mkdir(join(root, name), { recursive: true });
    await Deno.chmod(join(root, "tmp"), 0o1777);
    await Deno.writeTextFile(join(root, "etc/passwd"), "root:x:0:0:root:/:/bin/sh\n");
    const busybox = join(root, "bin/busybox");
    await run("take busybox out of the guest's image", "debugfs", [
      "-R",
      `dump /usr/bin/busybox ${busybox}`,
      guest.root,
    ]);
    await Deno.chmod(busybox, 0o755);
    for (const name of (await run("ask busybox for its programs", busybox, ["--list"])).split("\n")) {
      if (name !== "" && name !== "busybox") await Deno.symlink("busybox", join(root, "bin", name));
    }
    if (agnhost !== undefined) await Deno.writeTextFile(join(root, "agnhost"), agnhost, { mode: 0o755 });
    await imageArchive(temp, join(into, "test.tar"), {
      names,
      layers: [root],
      config: { ...config, Env: [IMAGE_PATH] },
    });
  });
  return join(folder, "test.tar");
}

/** Packs a folder, so that it depends on nothing but the names, modes and contents in it. */
async function tar(temp: TempFolder, folder: string, file: string): Promise<void> {
  const TAR_OPTIONS = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"];
  await run(`pack ${folder}`, "tar", [...TAR_OPTIONS, "-C", folder, "-cf", file, "."], { guardedBy: temp });
}
