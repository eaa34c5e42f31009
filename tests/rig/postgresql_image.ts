/**
 * An image with PostgreSQL of Debian, as nodes without a registry get it.
 *
 * @module
 */

import { join } from "@std/path";
import { unpackDebian } from "../../deploy/image/debian.ts";
import { pickSystem } from "../../deploy/image/pick.ts";
import { DEBIAN_RELEASE } from "../../deploy/image/system.ts";
import type { Architecture } from "../../deploy/runtime.ts";
import { cacheKey, ensureCached } from "./cache.ts";
import { IMAGE_PATH, imageArchive } from "./pod_image.ts";

/** Its major version in that release of Debian. */
const VERSION = 15;

/** The name of the image. */
export const POSTGRESQL_IMAGE = `rig.denolith.test/postgresql:${VERSION}`;

/** The user that its server runs as, since it refuses to run as root. */
export const POSTGRESQL_USER = { name: "postgres", id: 999 } as const;

const [PROGRAMS, SHARE] = [`/usr/lib/postgresql/${VERSION}`, `/usr/share/postgresql/${VERSION}/`];

/** The packages, and what is taken of each. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  [`postgresql-${VERSION}`]: [
    ...["initdb", "pg_checksums", "pg_ctl", "postgres"].map((name) => `${PROGRAMS}/bin/${name}`),
    ...["amcheck", "dict_snowball", "plpgsql"].map((name) => `${PROGRAMS}/lib/${name}.so`),
  ],
  [`postgresql-client-${VERSION}`]: [`${PROGRAMS}/bin/psql`],
  "base-passwd": ["/etc/passwd", "/etc/group"],
  coreutils: ["cat", "chown", "mkdir", "sleep", "yes"],
  dash: ["sh"],
  "util-linux": ["setpriv"],
};

/** To be raised when the way in which the image is put together changes. */
const FORMAT = 1;

/**
 * Returns the path of an archive of the image, made on first use.
 *
 * @throws {Error} when a step fails; making it takes apt-get, dpkg-deb, and a mirror of Debian
 */
export async function ensurePostgresqlImage(log: (line: string) => void): Promise<string> {
  const arch = Deno.build.arch as Architecture;
  const name = `postgresql-image-${await cacheKey(JSON.stringify([FORMAT, DEBIAN_RELEASE, arch, PACKAGES]))}`;
  const folder = await ensureCached(name, log, async (temp, into) => {
    log("postgresql: fetching Debian's packages, once");
    const [debian, root] = [temp.file("debian"), temp.file("root")];
    await Deno.mkdir(debian);
    const unpacked = await unpackDebian(Object.keys(PACKAGES), { arch, release: DEBIAN_RELEASE, folder: debian });
    const shared = [...unpacked.owners.keys()].filter((path) => path.startsWith(SHARE) && !path.includes("/man/"));
    await pickSystem(unpacked, [...Object.values(PACKAGES).flat(), ...shared], { arch, out: root });
    const { name, id } = POSTGRESQL_USER;
    await Deno.writeTextFile(join(root, "etc/passwd"), `${name}:x:${id}:${id}::/:/bin/sh\n`, { append: true });
    await Deno.writeTextFile(join(root, "etc/group"), `${name}:x:${id}:\n`, { append: true });
    const config = { Env: [`${IMAGE_PATH}:${PROGRAMS}/bin`] };
    await imageArchive(temp, join(into, "image.tar"), { names: [POSTGRESQL_IMAGE], layers: [root], config });
  });
  return join(folder, "image.tar");
}
