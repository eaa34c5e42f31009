/**
 * A release that is made by `deno task release`, published on loopback, and installed and verified with programs of other
 * authors.
 *
 * @module
 */

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { dirname, join } from "@std/path";
import manifest from "../../../deno.json" with { type: "json" };
import { runtimeMissing } from "../../../deploy/native.ts";
import { isProgram, type Target } from "../../../deploy/runtime.ts";
import { ensureTools } from "../../rig/debian.ts";
import { ensureHelm } from "../../rig/kubernetes.ts";
import { run } from "../../rig/process.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { krewEnvironment, Publication, writeKey } from "../publication.ts";
import { ensureCosign, ensureCrane, ensureKrew } from "../tools.ts";

const { version } = manifest;

Deno.test("a release is published, installed and verified with the tools of others", async (t) => {
  const full = Deno.env.get("FULL_RELEASE") === "yes";
  const crane = await ensureCrane(console.error);
  await using temp = await TempFolder.create("/var/tmp", "denolith-release-");
  await using publication = await Publication.make(temp, await writeKey(temp.file("key.pem")));
  const { folder, digests, registry, downloads } = publication;
  const path = (name: string) => publication.path(name);
  const repositories = { image: `${registry}/denolith`, chart: `${registry}/charts/denolith` } as const;

  await t.step("the executable is that of the checksums, and starts", async () => {
    await run("check the checksums", "sha256sum", ["-c", "SHA256SUMS"], { cwd: folder });
    const program = path(`denolith-${version}-linux-amd64`);
    const env = { DENOLITH_CACHE: temp.file("cache") };
    assertStringIncludes(await run("start the executable", program, ["version"], { env }), `denolith ${version} `);
  });

  await t.step("dpkg and rpm install the packages and remove them again, and apt finds what they need", async () => {
    await ensureTools([{ program: "rpm", packages: ["rpm"] }], console.error);
    const env = { DENOLITH_CACHE: temp.file("cache") };
    const [deb, rpm] = ["deb", "rpm"].map((kind) => path(`denolith-${version}-linux-amd64.${kind}`)) as [
      string,
      string,
    ];
    const plan = await run("plan the installation", "apt-get", ["install", "--simulate", deb]);
    assertStringIncludes(plan, `Inst denolith (${version}`);
    // in a namespace where systemd seems to run, with a systemctl that writes down what it is called for
    const calls = temp.file("calls");
    const systemctl = temp.file("stubs/systemctl");
    await Deno.mkdir(dirname(systemctl));
    await Deno.writeTextFile(systemctl, `#!/bin/sh\necho "$*" >> ${calls}\n`, { mode: 0o755 });
    const systemd = "mount -t tmpfs run /run\nmkdir -p /run/systemd/system\n";
    const shell = async (root: string, script: string) => {
      await Deno.mkdir(root);
      const args = ["--mount", "sh", "-euc", systemd + script, "sh", root, deb, rpm];
      const path = `${dirname(systemctl)}:${Deno.env.get("PATH")}`;
      return await run("use a package", "unshare", args, { env: { ...env, PATH: path } });
    };
    const dpkg = 'dpkg --root="$1" --log=/dev/null --force-depends --force-script-chrootless';
    const left = await shell(
      temp.file("deb"),
      `mkdir -p "$1/var/lib/dpkg/info" "$1/var/lib/dpkg/updates" "$1/var/cache/denolith"
      touch "$1/var/lib/dpkg/status"
      ${dpkg} --install "$2"
      "$1/usr/bin/denolith" version >&2
      grep -q ExecStart=/usr/bin/denolith "$1/usr/lib/systemd/system/denolith.service"
      ${dpkg} --remove denolith >&2
      (cd "$1" && find . -path ./var/lib -prune -o -type f -print)
      ${dpkg} --purge denolith >&2
      (cd "$1" && find . -path ./var/lib -prune -o -type f -print)`,
    );
    assertStringIncludes(left, "Setting up denolith");
    assertEquals(left.split("\n").filter((line) => line.startsWith("./")), ["./etc/default/denolith"]);
    assertEquals((await Deno.readTextFile(calls)).trimEnd().split("\n"), [
      ...["daemon-reload", "try-restart denolith.service", "disable --now denolith.service", "daemon-reload"],
    ]);
    const listed = await shell(
      temp.file("rpm"),
      `rpm --root "$1" --initdb
      rpm --root "$1" --install --nodeps --noscripts "$3" >&2
      rpm --root "$1" --verify --nodeps denolith >&2
      "$1/usr/bin/denolith" version
      rpm --root "$1" --erase --noscripts denolith
      (cd "$1" && find . -path ./root -prune -o -path ./var/lib -prune -o -type f -print)`,
    );
    assertEquals(
      listed,
      await run("start the executable", path(`denolith-${version}-linux-amd64`), ["version"], { env }),
    );
  });

  await t.step("openssl accepts the signature of the checksums", async () => {
    const bytes = Uint8Array.fromBase64(await Deno.readTextFile(path("SHA256SUMS.sig")));
    await Deno.writeFile(temp.file("sig"), bytes);
    const args = ["dgst", "-sha256", "-verify", path("denolith.pub"), "-signature", temp.file("sig")];
    await run("verify", "openssl", [...args, path("SHA256SUMS")]);
    await assertRejects(() => run("verify", "openssl", [...args, path("digests.json")]));
  });

  await t.step("the script publishes image, chart and signatures, under the digests that were written", async () => {
    const lines = (["image", "chart"] as const).map((part) => `${repositories[part]}:${version}@${digests[part]}`);
    assertEquals(await publication.publish(), lines.join("\n"));
    for (const part of ["image", "chart"] as const) {
      const repository = repositories[part];
      assertEquals(await run("read a digest", crane, ["digest", `${repository}:${version}`]), digests[part]);
      const tags = (await run("list", crane, ["ls", repository])).trim().split("\n").sort();
      assertEquals(tags, [version, ...["att", "sig"].map((kind) => `${digests[part].replace(":", "-")}.${kind}`)]);
      await run("push", crane, ["push", path(part), `${repository}:by-crane`]);
    }
    const index = JSON.parse(await run("read the index", crane, ["manifest", `${repositories.image}:${version}`]));
    const platforms = index.manifests.map(({ platform }: { platform: object }) => platform);
    assertEquals(platforms, [{ architecture: "amd64", os: "linux" }, { architecture: "arm64", os: "linux" }]);
    await run("validate the image", crane, ["validate", "--remote", `${repositories.image}:${version}`]);
  });

  await t.step(
    "helm takes the chart from the index and from the registry, and it names the published image",
    async () => {
      const program = await ensureHelm(console.error);
      const homes = ["CACHE", "CONFIG", "DATA"].map((name) => [`HELM_${name}_HOME`, temp.file(`helm-${name}`)]);
      const helm = (...args: string[]) => run(`helm ${args[0]}`, program, args, { env: Object.fromEntries(homes) });
      await helm("repo", "add", "denolith", downloads);
      assertStringIncludes(await helm("search", "repo", "denolith"), version);
      const render = ["template", "denolith", "denolith/denolith", "--version", version, "--kube-version", "1.36.0"];
      const rendered = await helm(...render);
      const images = [...rendered.matchAll(/^ +image: (.*)$/gm)].map(([, image]) => image);
      assertEquals(images, Array(4).fill(`${repositories.image}:${version}@${digests.image}`));
      await run("validate the image", crane, ["validate", "--remote", images[0]!, "--fast"]);
      await helm("pull", `oci://${repositories.chart}`, "--version", version, "--plain-http", "-d", temp.path);
      const pulled = temp.file(`denolith-${version}.tgz`);
      assertEquals(await Deno.readFile(pulled), await Deno.readFile(path(`denolith-${version}.tgz`)));
      assertStringIncludes(await helm("lint", "--strict", pulled), "0 chart(s) failed");
      assertStringIncludes(await helm("show", "readme", pulled), `helm install denolith oci://${repositories.chart} `);
      const refused = ["template", "denolith", pulled, "--set", "image.repository=denolith"];
      await assertRejects(() => helm(...refused), Error, "The image has no registry to be pulled from");
      const shared = ["template", "denolith", pulled, "--set", "node.serviceAccount.name=denolith-controller"];
      await assertRejects(() => helm(...shared), Error, "Agents and controller have the same account");
    },
  );

  await t.step("krew installs the plugin for each system that it can start one on", async () => {
    const krew = await ensureKrew(console.error);
    const systems: Record<string, Target> = {
      "linux/amd64": { system: "linux", arch: "x86_64" },
      "linux/arm64": { system: "linux", arch: "aarch64" },
      "darwin/amd64": { system: "darwin", arch: "x86_64" },
      "darwin/arm64": { system: "darwin", arch: "aarch64" },
      "windows/amd64": { system: "windows", arch: "x86_64" },
      "windows/arm64": { system: "windows", arch: "aarch64" },
    };
    for (const [system, target] of Object.entries(systems)) {
      const [os, arch] = system.split("/") as [string, string];
      const env = { ...await krewEnvironment(temp, `krew-${os}-${arch}`), KREW_OS: os, KREW_ARCH: arch };
      const install = () =>
        run("install the plugin", krew, ["install", `--manifest-url=${downloads}/krew.yaml`], { env });
      if (os === "windows" && await runtimeMissing(target) !== undefined) {
        await assertRejects(install, Error, "does not offer installation for this platform"); // it is a script
        continue;
      }
      await install();
      const store = join(env.KREW_ROOT, "store/denolith", `v${version}`);
      const names = [...Deno.readDirSync(store)].map(({ name }) => name);
      const program = names.includes("deno") ? "deno" : `kubectl-denolith${os === "windows" ? ".exe" : ""}`;
      assert(isProgram(await Deno.readFile(join(store, program)), target), system);
      if (system !== "linux/amd64") continue;
      const printed = await run("start the plugin", join(env.KREW_ROOT, "bin/kubectl-denolith"), ["version"]);
      assertStringIncludes(printed, `kubectl-denolith ${version} `);
    }
  });

  if (!full) return;

  const again = temp.file("again");

  await t.step("the same commit has the same digests, whatever the key", async () => {
    assertEquals(await publication.again(again, await writeKey(temp.file("other.pem"))), digests);
    assertEquals(await Deno.readTextFile(join(again, "SHA256SUMS")), await Deno.readTextFile(path("SHA256SUMS")));
    assert(await Deno.readTextFile(join(again, "SHA256SUMS.sig")) !== await Deno.readTextFile(path("SHA256SUMS.sig")));
  });

  await t.step("cosign accepts signatures and provenance by the key, and none by another", async () => {
    const cosign = await ensureCosign(console.error);
    const common = ["--insecure-ignore-tlog", "--allow-insecure-registry", "--new-bundle-format=false"];
    const key = ["--key", `${downloads}/denolith.pub`];
    const other = ["--key", join(again, "denolith.pub")];
    const blob = ["--insecure-ignore-tlog", "--new-bundle-format=false", ...key];
    await run("verify", cosign, ["verify-blob", ...blob, "--signature", path("SHA256SUMS.sig"), path("SHA256SUMS")]);
    const provenance = ["--type", "slsaprovenance1", "--signature", path("provenance.intoto.json")];
    const program = path(`denolith-${version}-linux-amd64`);
    await run("verify", cosign, ["verify-blob-attestation", ...blob, ...provenance, program]);
    const attestation = ["verify-attestation", "--type", "slsaprovenance1", ...common];
    for (const name of ["image", "chart"] as const) {
      const target = `${repositories[name]}@${digests[name]}`;
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
