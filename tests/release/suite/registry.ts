/**
 * A release that is made by `deno task release`, pushed to a registry on loopback, and verified with programs of other authors.
 *
 * @module
 */

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { generateKeyPairSync } from "node:crypto";
import { join } from "@std/path";
import manifest from "../../../deno.json" with { type: "json" };
import { cosignTag } from "../../../deploy/release/sign.ts";
import { freePorts } from "../../rig/free_ports.ts";
import { ensureHelm } from "../../rig/kubernetes.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { run } from "../../rig/process.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { ensureCosign, ensureCrane, ensureSkopeo } from "../tools.ts";

const { version } = manifest;

/** The repositories of image and chart. Helm wants the chart's name at the end of its own. */
const REPOSITORIES = { image: "denolith-image", chart: "denolith" } as const;

/** A registry on loopback, which ends when it is disposed of. */
class Registry implements AsyncDisposable {
  private constructor(readonly address: string, readonly process: Deno.ChildProcess) {}

  /** Starts one that keeps blobs in a folder. */
  static async start(crane: string, folder: TempFolder): Promise<Registry> {
    const [port] = freePorts(1);
    const address = `127.0.0.1:${port}`;
    const args = ["registry", "serve", "--address", address, "--disk", folder.path];
    const process = new Deno.Command(crane, { args, stdin: "null", stdout: "null", stderr: "null" }).spawn();
    await folder.guard(process.pid);
    const answers = () => fetch(`http://${address}/v2/`).then((answer) => answer.text(), () => undefined);
    await pollUntil(async () => await answers() !== undefined, { action: "start the registry", timeoutMs: 60_000 });
    return new Registry(address, process);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.process.kill("SIGTERM");
    await this.process.status;
  }
}

/** Makes a release of this checkout, signed with a key. @returns the digests of image and chart */
async function release(folder: string, key: string): Promise<Record<string, string>> {
  const make = new URL("../../../deploy/release/make.ts", import.meta.url).pathname;
  const args = ["run", "-A", make, "--key", key, "--output", folder];
  await run("make a release", Deno.execPath(), args, { onLine: console.error });
  return JSON.parse(await Deno.readTextFile(join(folder, "digests.json")));
}

/** Writes a private key. @returns the path of it */
async function writeKey(path: string): Promise<string> {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  await Deno.writeTextFile(path, privateKey.export({ type: "pkcs8", format: "pem" }) as string);
  return path;
}

Deno.test("a release is pushed, installed and verified with the tools of others", async (t) => {
  const full = Deno.env.get("FULL_RELEASE") === "yes";
  await ensureSkopeo(console.error);
  const crane = await ensureCrane(console.error);
  await using temp = await TempFolder.create("/var/tmp", "denolith-release-");
  const [folder, again] = [temp.file("release"), temp.file("again")];
  const path = (name: string) => join(folder, name);
  const digests = await release(folder, await writeKey(temp.file("key.pem")));

  await t.step("the executable is that of the checksums, and starts", async () => {
    await run("check the checksums", "sha256sum", ["-c", "SHA256SUMS"], { cwd: folder });
    const program = path(`denolith-${version}-linux-amd64`);
    const env = { DENOLITH_CACHE: temp.file("cache") };
    assertStringIncludes(await run("start the executable", program, ["version"], { env }), `denolith ${version} `);
  });

  await t.step("openssl accepts the signature of the checksums", async () => {
    const bytes = Uint8Array.fromBase64(await Deno.readTextFile(path("SHA256SUMS.sig")));
    await Deno.writeFile(temp.file("sig"), bytes);
    const args = ["dgst", "-sha256", "-verify", path("denolith.pub"), "-signature", temp.file("sig")];
    await run("verify", "openssl", [...args, path("SHA256SUMS")]);
    await assertRejects(() => run("verify", "openssl", [...args, path("digests.json")]));
  });

  await using blobs = await TempFolder.create("/var/tmp", "denolith-registry-");
  await using registry = await Registry.start(crane, blobs);
  const reference = (name: keyof typeof REPOSITORIES) => `${registry.address}/${REPOSITORIES[name]}`;

  await t.step("skopeo and crane push image, chart and signatures, under the same digests", async () => {
    for (const name of ["image", "chart"] as const) {
      const target = `docker://${reference(name)}:${version}`;
      const from = `oci:${path(name)}:${version}`;
      await run("push", "skopeo", ["copy", "--all", "--dest-tls-verify=false", from, target]);
      const pushed = (await run("read a digest", crane, ["digest", `${reference(name)}:${version}`])).trim();
      assertEquals(pushed, digests[name]);
      await run("push", crane, ["push", path(name), `${reference(name)}:by-crane`]);
      for (const kind of ["sig", "att"] as const) {
        await run("push", crane, ["push", path(`${name}.${kind}`), `${reference(name)}:${cosignTag(pushed, kind)}`]);
      }
    }
    const index = JSON.parse(await run("read the index", crane, ["manifest", `${reference("image")}:${version}`]));
    const platforms = index.manifests.map(({ platform }: { platform: object }) => platform);
    assertEquals(platforms, [{ architecture: "amd64", os: "linux" }, { architecture: "arm64", os: "linux" }]);
    await run("validate the image", crane, ["validate", "--remote", `${reference("image")}:${version}`]);
  });

  if (!full) return;

  await t.step("the same commit has the same digests, whatever the key", async () => {
    assertEquals(await release(again, await writeKey(temp.file("other.pem"))), digests);
    assertEquals(await Deno.readTextFile(join(again, "SHA256SUMS")), await Deno.readTextFile(path("SHA256SUMS")));
    assert(await Deno.readTextFile(join(again, "SHA256SUMS.sig")) !== await Deno.readTextFile(path("SHA256SUMS.sig")));
  });

  await t.step("helm pulls the chart, lints it and renders it", async () => {
    const helm = await ensureHelm(console.error);
    const args = ["pull", `oci://${reference("chart")}`, "--version", version, "--plain-http", "-d", temp.path];
    await run("pull the chart", helm, args);
    const pulled = temp.file(`denolith-${version}.tgz`);
    assertEquals(await Deno.readFile(pulled), await Deno.readFile(path(`denolith-${version}.tgz`)));
    assertStringIncludes(await run("lint", helm, ["lint", pulled]), "0 chart(s) failed");
    assertStringIncludes(
      await run("render", helm, ["template", "x", pulled, "--kube-version", "1.36.0"]),
      "kind: DaemonSet",
    );
    const readme = await run("read the README", helm, ["show", "readme", pulled]);
    assertStringIncludes(readme, "`thinPool.overcommit`");
  });

  await t.step("cosign accepts signatures and provenance by the key, and none by another", async () => {
    const cosign = await ensureCosign(console.error);
    const common = ["--insecure-ignore-tlog", "--allow-insecure-registry", "--new-bundle-format=false"];
    const key = ["--key", path("denolith.pub")];
    const other = ["--key", join(again, "denolith.pub")];
    const blob = ["--insecure-ignore-tlog", "--new-bundle-format=false", ...key];
    await run("verify", cosign, ["verify-blob", ...blob, "--signature", path("SHA256SUMS.sig"), path("SHA256SUMS")]);
    const provenance = ["--type", "slsaprovenance1", "--signature", path("provenance.intoto.json")];
    const program = path(`denolith-${version}-linux-amd64`);
    await run("verify", cosign, ["verify-blob-attestation", ...blob, ...provenance, program]);
    const attestation = ["verify-attestation", "--type", "slsaprovenance1", ...common];
    for (const name of ["image", "chart"] as const) {
      const target = `${reference(name)}@${digests[name]}`;
      const verified = await run("verify", cosign, ["verify", ...common, ...key, target]);
      assertStringIncludes(verified, digests[name]!);
      await assertRejects(() => run("verify", cosign, ["verify", ...common, ...other, target]));
      const [line] = (await run("verify", cosign, [...attestation, ...key, target])).split("\n");
      const statement = JSON.parse(new TextDecoder().decode(Uint8Array.fromBase64(JSON.parse(line!).payload)));
      assertEquals(statement.predicateType, "https://slsa.dev/provenance/v1");
      await assertRejects(() => run("verify", cosign, [...attestation, ...other, target]));
    }
  });
});
