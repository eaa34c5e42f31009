/**
 * A release that is published on loopback: its files behind a web server, image and chart in a registry.
 *
 * @module
 */

import { generateKeyPairSync } from "node:crypto";
import { dirname, join } from "@std/path";
import { freePorts } from "../rig/free_ports.ts";
import { pollUntil } from "../rig/poll_until.ts";
import { run } from "../rig/process.ts";
import { TempFolder } from "../rig/temp_folder.ts";
import { ensureCrane, ensureNfpm, ensureSkopeo } from "./tools.ts";

/** The digests of a release. */
export interface Digests {
  readonly image: string;
  readonly chart: string;
}

/** Where the sources would be. */
const HOME = "https://git.example/team/denolith";

/** Writes a private key. @returns the path of it */
export async function writeKey(path: string): Promise<string> {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  await Deno.writeTextFile(path, privateKey.export({ type: "pkcs8", format: "pem" }) as string);
  return path;
}

/** A registry and a web server on loopback, which end when they are disposed of, and what is published there. */
export class Publication implements AsyncDisposable {
  private constructor(
    /** The address of the registry. */
    readonly registry: string,
    /** The address of the files. */
    readonly downloads: string,
    /** The folder of the release. */
    readonly folder: string,
    readonly digests: Digests,
    readonly parts: AsyncDisposableStack,
  ) {}

  /** Makes a release of this checkout in a folder, signed with a key, and serves its files. Nothing is in the registry yet. */
  static async make(temp: TempFolder, key: string): Promise<Publication> {
    await ensureSkopeo(console.error);
    const crane = await ensureCrane(console.error);
    const [registryPort, webPort] = freePorts(2) as [number, number];
    const registry = `127.0.0.1:${registryPort}`;
    const downloads = `http://127.0.0.1:${webPort}`;
    const folder = temp.file("release");
    await using parts = new AsyncDisposableStack();
    const server = Deno.serve(
      { hostname: "127.0.0.1", port: webPort, onListen() {} },
      (request) => answer(folder, request),
    );
    parts.defer(() => server.shutdown());
    const blobs = parts.use(await TempFolder.create("/var/tmp", "denolith-registry-"));
    const args = ["registry", "serve", "--address", registry, "--disk", blobs.path];
    const process = new Deno.Command(crane, { args, stdin: "null", stdout: "null", stderr: "null" }).spawn();
    parts.defer(async () => {
      process.kill("SIGTERM");
      await process.status;
    });
    await blobs.guard(process.pid);
    const answers = () => fetch(`http://${registry}/v2/`).then((answer) => answer.text(), () => undefined);
    await pollUntil(async () => await answers() !== undefined, { action: "start the registry", timeoutMs: 60_000 });
    const digests = await makeRelease({ registry, downloads, folder, key });
    return new Publication(registry, downloads, folder, digests, parts.move());
  }

  /** Makes the release again in another folder, with another key. @returns its digests */
  async again(folder: string, key: string): Promise<Digests> {
    return await makeRelease({ ...this, folder, key });
  }

  /** Puts image, chart and signatures into the registry. @returns what the script printed */
  async publish(): Promise<string> {
    const script = new URL("../../deploy/release/publish.sh", import.meta.url).pathname;
    return await run("publish", script, [this.folder, this.registry, "--dest-tls-verify=false"]);
  }

  /** Returns the path of a file of the release. */
  path(name: string): string {
    return join(this.folder, name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.parts.disposeAsync();
  }
}

async function makeRelease(
  { registry, downloads, folder, key }: Pick<Publication, "registry" | "downloads" | "folder"> & { key: string },
): Promise<Digests> {
  const make = new URL("../../deploy/release/make.ts", import.meta.url).pathname;
  const addresses = ["--registry", registry, "--home", HOME, "--downloads", downloads];
  const args = ["run", "-A", make, "--key", key, "--output", folder, ...addresses];
  const env = { PATH: `${dirname(await ensureNfpm(console.error))}:${Deno.env.get("PATH")}` };
  await run("make a release", Deno.execPath(), args, { env, onLine: console.error });
  return JSON.parse(await Deno.readTextFile(join(folder, "digests.json")));
}

async function answer(folder: string, request: Request): Promise<Response> {
  const name = new URL(request.url).pathname.slice(1);
  try {
    if (!/^[\w.-]+$/.test(name)) throw new Deno.errors.NotFound();
    const file = await Deno.open(join(folder, name));
    return new Response(file.readable, { headers: { "content-length": String((await file.stat()).size) } });
  } catch {
    return new Response("no such file\n", { status: 404 });
  }
}

/** Returns the blocks of commands of a README. */
export function commandBlocks(readme: string): string[] {
  return [...readme.matchAll(/^```sh\n([^]*?)^```$/gm)].map(([, block]) => block!);
}

/** Returns the variables of krew for a folder of its own, with an index without plugins: it would look for one in the web. */
export async function krewEnvironment(temp: TempFolder, name: string) {
  const index = temp.file("krew-index");
  const author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
  if (!await Deno.stat(index).then(() => true, () => false)) {
    await run("make an index of krew", "git", ["init", "--quiet", index]);
    await run("make an index of krew", "git", [
      "-C",
      index,
      ...author,
      "commit",
      "--quiet",
      "--allow-empty",
      "-mEmpty",
    ]);
  }
  return { KREW_ROOT: temp.file(name), KREW_DEFAULT_INDEX_URI: index };
}
