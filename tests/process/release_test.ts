import { assert, assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { generateKeyPairSync, verify } from "node:crypto";
import { join } from "@std/path";
import { parse, parseAll } from "@std/yaml";
import manifest from "../../deno.json" with { type: "json" };
import { makeTar, run } from "../../deploy/process.ts";
import { sha256OfFile } from "../../deploy/self_extracting.ts";
import { changelogEntry } from "../../deploy/release/changelog.ts";
import { makeRelease, type Platform, RELEASE_FILES, type ReleaseOptions } from "../../deploy/release/release.ts";
import { Signer } from "../../deploy/release/sign.ts";
import { parseAddresses } from "../../deploy/release/addresses.ts";
import { DENO_VERSION, SYSTEMS } from "../../deploy/runtime.ts";

/** A file of dpkg with one package. */
const STATUS = "Package: lvm2\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.03.16-2\n\n";

const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
const KEY = privateKey.export({ type: "pkcs8", format: "pem" }) as string;

const ADDRESSES = parseAddresses({ registry: "registry.example/team", home: "https://git.example/denolith" });
const DOWNLOADS = `https://git.example/denolith/releases/download/v${manifest.version}`;

/** A release of this checkout with small files in the places of Deno and Debian. */
async function smallRelease(temp: string, options: Partial<ReleaseOptions> = {}) {
  const deno = join(temp, "deno");
  await Deno.writeTextFile(deno, "a program");
  const root = join(temp, "system");
  await Deno.mkdir(join(root, "var/lib/dpkg"), { recursive: true });
  await Deno.writeTextFile(join(root, "var/lib/dpkg/status"), STATUS);
  await makeTar(root, join(temp, "system.tar"));
  const platforms: Platform[] = (["x86_64", "aarch64"] as const).map((arch) => ({
    ...{ arch, deno, denoVersion: DENO_VERSION, isCompiled: false, system: join(temp, "system.tar") },
  }));
  const plugins = SYSTEMS.map((system) => ({
    target: { system, arch: "aarch64" as const },
    denoVersion: DENO_VERSION,
    deno,
  }));
  const changelog = await Deno.readTextFile(new URL("../../CHANGELOG.md", import.meta.url));
  return await makeRelease({
    ...{
      folder: join(temp, "release"),
      platforms,
      plugins,
      std: "npm" as const,
      addresses: ADDRESSES,
      builder: "https://example.org/me",
      log: () => {},
    },
    source: { root: temp, commit: "ab".repeat(20), time: "2026-11-24T12:00:00Z", isChanged: false },
    changes: changelogEntry(changelog, manifest.version, { isDated: false }),
    ...options,
  });
}

/** Returns the checksums of all files below a folder, by path. */
async function checksums(folder: string, under = ""): Promise<Map<string, string>> {
  const sums = new Map<string, string>();
  for (const { name, isDirectory } of [...Deno.readDirSync(join(folder, under))]) {
    const path = join(under, name);
    if (isDirectory) { for (const [key, sum] of await checksums(folder, path)) sums.set(key, sum); }
    else sums.set(path, await sha256OfFile(join(folder, path)));
  }
  return sums;
}

/** Returns the JSON of the blob with a digest. */
async function blob(layout: string, digest: string) {
  return JSON.parse(await Deno.readTextFile(join(layout, "blobs/sha256", digest.replace("sha256:", ""))));
}

/** Returns the only entry of a layout. */
async function entry(layout: string) {
  const { manifests } = JSON.parse(await Deno.readTextFile(join(layout, "index.json")));
  assertEquals(manifests.length, 1);
  return manifests[0];
}

const shared = await Deno.makeTempDir();
globalThis.addEventListener("unload", () => Deno.removeSync(shared, { recursive: true }));
const digests = await smallRelease(shared, { key: KEY });
const folder = join(shared, "release");

Deno.test("the release of the same commit has the same files twice, and without a key neither signature nor provenance", async () => {
  const temp = await Deno.makeTempDir();
  try {
    await Deno.mkdir(join(temp, "release"));
    await Deno.writeTextFile(join(temp, "release/old"), "of an older release");
    await Deno.writeTextFile(join(temp, "release", RELEASE_FILES.digests), "{}");
    assertEquals(await smallRelease(temp), digests);
    const before = await checksums(folder);
    const after = await checksums(join(temp, "release"));
    const isOfKey = (path: string) =>
      /^(?:image|chart)\.(?:sig|att)\/|\.sig$|^provenance|\.pub$|-offline\.tar$/.test(path);
    const withoutKey = (files: typeof before) => [...files].filter(([path]) => !isOfKey(path)).sort();
    assertEquals(withoutKey(before), withoutKey(after));
    assert(after.size > 15 && before.size > after.size + 12, "the test sees the files");
    assertEquals([...Deno.readDirSync(temp)].map(({ name }) => name).sort(), [
      "deno",
      "release",
      "system",
      "system.tar",
    ]);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("a release does not take the place of a folder that is none", async () => {
  const temp = await Deno.makeTempDir();
  try {
    await Deno.mkdir(join(temp, "release"));
    await Deno.writeTextFile(join(temp, "release/letters"), "of a person");
    await assertRejects(
      () => smallRelease(temp),
      Error,
      "release: it is not empty, and no release: it has no digests.json",
    );
    assertEquals(await Deno.readTextFile(join(temp, "release/letters")), "of a person");
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("the release has executables, SBOMs, image and chart, and each checksum and signature is right", async () => {
  const { version } = manifest;
  const text = (name: string) => Deno.readTextFile(join(folder, name));
  const sums = await text(RELEASE_FILES.sums);
  const listed = sums.trimEnd().split("\n").map((line) => line.split("  ") as [string, string]);
  assertEquals(
    listed.map(([, name]) => name),
    [
      ...["amd64", "amd64.cdx.json", "arm64", "arm64.cdx.json"].map((end) => `denolith-${version}-linux-${end}`),
      ...[`denolith-${version}-share.tar.gz`, `denolith-${version}.tgz`],
      ...["amd64", "arm64"].map((arch) => `denolith-image-${version}-linux-${arch}.cdx.json`),
      ...["linux-arm64.tar.gz", "darwin-arm64.tar.gz", "windows-arm64.zip"].map((end) =>
        `kubectl-denolith-${version}-${end}`
      ),
      ...[
        "OFFLINE.md",
        "README.md",
        `denolith-${version}-docs.tar.gz`,
        "digests.json",
        "example.yaml",
        "icon.svg",
        "index.yaml",
        "install.yaml",
        "krew.yaml",
        "publish.sh",
      ],
    ].sort(),
  );
  for (const [sum, name] of listed) assertEquals(await sha256OfFile(join(folder, name)), sum);
  assertEquals(JSON.parse(await text("digests.json")), digests);
  const isSigned = (bytes: string, signature: string) =>
    verify("sha256", new TextEncoder().encode(bytes), publicKey, Uint8Array.fromBase64(signature));
  assert(isSigned(sums, await text(RELEASE_FILES.signature)));

  const image = join(folder, RELEASE_FILES.image);
  assertEquals((await entry(image)).digest, digests.image);
  const { manifests } = await blob(image, digests.image);
  assertEquals(manifests.map(({ platform }: { platform: unknown }) => platform), [
    ...["amd64", "arm64"].map((architecture) => ({ architecture, os: "linux" })),
  ]);
  const arm64 = await blob(image, manifests[1].digest);
  assertEquals(arm64.layers.length, 2);
  const config = await blob(image, arm64.config.digest);
  assertEquals([config.architecture, config.config.Entrypoint], ["arm64", [
    "/usr/bin/tini",
    "--",
    "/usr/bin/denolith",
  ]]);
  assertStringIncludes(await text(`denolith-image-${version}-linux-arm64.cdx.json`), "pkg:deb/debian/lvm2@2.03.16-2");

  const chart = await blob(join(folder, RELEASE_FILES.chart), digests.chart);
  assertEquals(chart.config.mediaType, "application/vnd.cncf.helm.config.v1+json");

  for (const [name, digest] of Object.entries(digests)) {
    const signature = await entry(join(folder, `${name}.sig`));
    const tag = signature.annotations["org.opencontainers.image.ref.name"];
    assertEquals(tag, `${digest.replace(":", "-")}.sig`);
    const { layers: [layer] } = await blob(join(folder, `${name}.sig`), signature.digest);
    const payload = await blob(join(folder, `${name}.sig`), layer.digest);
    assertEquals(payload.critical.image, { "docker-manifest-digest": digest });
    assert(isSigned(JSON.stringify(payload), layer.annotations["dev.cosignproject.cosign/signature"]));
  }
});

Deno.test("index, manifests and README name what is in the release, where it will be", async () => {
  const { version } = manifest;
  const text = (name: string) => Deno.readTextFile(join(folder, name));
  const sums = new Map<string, string>();
  for (const line of (await text(RELEASE_FILES.sums)).trimEnd().split("\n")) {
    const [sum, name] = line.split("  ");
    sums.set(`${DOWNLOADS}/${name}`, sum!);
  }
  const { entries: { denolith: [entry] } } = parse(await text("index.yaml")) as {
    entries: { denolith: { urls: string[]; digest: string; version: string; icon: string }[] };
  };
  assertEquals([entry!.version, entry!.digest], [version, sums.get(entry!.urls[0]!)!]);
  assert(sums.has(entry!.icon));

  const { spec } = parse(await text("krew.yaml")) as {
    spec: {
      version: string;
      caveats: string;
      platforms: { uri: string; sha256: string; bin: string; selector: object }[];
    };
  };
  assertEquals(spec.version, `v${version}`);
  assertStringIncludes(spec.caveats, `https://git.example/denolith/blob/v${version}/docs/guides/kubectl-plugin.md`);
  assertEquals(
    spec.platforms.map(({ selector, bin }) => ({ selector, bin })),
    ["linux", "darwin"].map((os) => ({ selector: { matchLabels: { os, arch: "arm64" } }, bin: "kubectl-denolith" })),
    "a script is nothing that krew can start on Windows",
  );
  for (const { uri, sha256 } of spec.platforms) assertEquals(sums.get(uri), sha256);

  const objects = parseAll(await text("install.yaml")) as { kind: string }[];
  assertEquals(objects.slice(0, 2).map(({ kind }) => kind), ["Namespace", "CustomResourceDefinition"]);
  const image = `registry.example/team/denolith:${version}@${digests.image}`;
  const images = [...JSON.stringify(objects).matchAll(/"image":"([^"]+)"/g)].map(([, name]) => name);
  assertEquals(images, Array(4).fill(image));

  const readme = await text("README.md");
  const named = [...readme.matchAll(/https?:[^\s)"`]+/g)].map(([address]) => address);
  const files = named.filter((address) => address.startsWith(`${DOWNLOADS}/`));
  assert(files.length > 4, "the README names files");
  assertEquals(files.filter((address) => !sums.has(address) && !/\/denolith\.pub$|-offline\.tar$/.test(address)), []);
  assertEquals(readme.match(/@[A-Z]+@|deno task|nothing is released|\]\((?!https?:)/), null);
  assertStringIncludes(readme, `](https://git.example/denolith/blob/v${version}/docs/guides/install.md)`);
  assertStringIncludes(readme, `src="https://git.example/denolith/blob/v${version}/docs/pictures/ui.png"`);
});

Deno.test("without addresses, a release has none of the files that need them", async () => {
  const temp = await Deno.makeTempDir();
  try {
    await smallRelease(temp, { addresses: {} });
    const names = [...Deno.readDirSync(join(temp, "release"))].map(({ name }) => name);
    assertEquals(names.filter((name) => /\.(?:yaml|md|svg)$/.test(name)), ["OFFLINE.md"]);
    assert(names.includes(`kubectl-denolith-${manifest.version}-windows-arm64.zip`));
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("the archive for clusters without a network has its parts with their checksums, and what its guide names", async () => {
  const temp = await Deno.makeTempDir();
  try {
    const { version } = manifest;
    await run("unpack", "tar", ["-C", temp, "-xf", join(folder, `denolith-${version}-offline.tar`)]);
    const unpacked = join(temp, `denolith-${version}`);
    const names = [...Deno.readDirSync(unpacked)].map(({ name }) => name);
    assertEquals(names.filter((name) => name.startsWith("denolith-")).sort(), [
      ...[`denolith-${version}-docs.tar.gz`, `denolith-${version}.tgz`],
    ]);
    const sums = await run("check", "sha256sum", ["--check", "--ignore-missing", "SHA256SUMS"], { cwd: unpacked });
    const covered = sums.trimEnd().split("\n").map((line) => line.replace(/: OK$/, ""));
    const others = names.filter((name) => !covered.includes(name)).sort();
    assertEquals(others, [
      ...["SHA256SUMS", "SHA256SUMS.sig", "chart", "chart.att", "chart.sig", "denolith.pub", "image", "image.att"],
      ...["image.sig", "provenance.intoto.json"],
    ]);
    const guide = await Deno.readTextFile(join(unpacked, "OFFLINE.md"));
    const named =
      guide.match(/\b(?:[\w-]+(?:\.[\w-]+)*\.(?:tgz|json|yaml|sh|pub)|SHA256SUMS|(?:image|chart)(?=\/`))/g) ?? [];
    assert(named.length > 8, "the guide names files");
    assertEquals(named.filter((name) => !names.includes(name)), []);
    const docs = await run("list", "tar", ["-tzf", join(unpacked, `denolith-${version}-docs.tar.gz`)]);
    for (const path of ["README.md", "LICENSE", "docs/guides/install.md", "deploy/examples/pod/pod.yaml"]) {
      assertStringIncludes(docs, `denolith-${version}/${path}\n`);
    }
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("the provenance names commit, runtimes and all parts of the release", async () => {
  const envelope = JSON.parse(await Deno.readTextFile(join(folder, RELEASE_FILES.provenance)));
  const body = Uint8Array.fromBase64(envelope.payload);
  const head = `DSSEv1 ${envelope.payloadType.length} ${envelope.payloadType} ${body.length} `;
  const signed = new Uint8Array([...new TextEncoder().encode(head), ...body]);
  assert(verify("sha256", signed, publicKey, Uint8Array.fromBase64(envelope.signatures[0].sig)));
  const { _type, subject, predicateType, predicate } = JSON.parse(new TextDecoder().decode(body));
  assertEquals([_type, predicateType], ["https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"]);
  const sums = (await Deno.readTextFile(join(folder, RELEASE_FILES.sums))).trimEnd().split("\n");
  const subjects = subject.map(({ name, digest }: { name: string; digest: { sha256: string } }) =>
    `${digest.sha256}  ${name}`
  );
  assertEquals(subjects, [
    ...sums,
    ...Object.entries(digests).map(([name, digest]) => `${digest.slice(7)}  ${name}:${manifest.version}`),
  ]);
  const { externalParameters, resolvedDependencies } = predicate.buildDefinition;
  assertEquals(externalParameters.std, "npm");
  assertEquals(resolvedDependencies[0].digest, { gitCommit: "ab".repeat(20) });
  const packages = ["linux-x64-glibc", "linux-arm64-glibc", "darwin-arm64", "win32-arm64"];
  assertEquals(
    resolvedDependencies.flatMap(({ uri }: { uri?: string }) => uri ?? []),
    packages.map((name) => `pkg:npm/%40deno/${name}@${DENO_VERSION}`),
  );
  assertEquals(predicate.runDetails.builder, { id: "https://example.org/me" });
});

Deno.test("Signer refuses what is no ECDSA key on P-256", async () => {
  assertThrows(() => new Signer("no key"), Error, "no private key in PEM");
  const { privateKey: ed } = generateKeyPairSync("ed25519");
  const pem = ed.export({ type: "pkcs8", format: "pem" }) as string;
  assertThrows(() => new Signer(pem), Error, "must be an ECDSA key on the curve P-256");
  const temp = await Deno.makeTempDir();
  try {
    await assertRejects(() => smallRelease(temp, { key: pem }), Error, "P-256");
    assertEquals([...Deno.readDirSync(temp)].map(({ name }) => name).sort(), ["deno", "system", "system.tar"]);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});
