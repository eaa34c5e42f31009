import { assert, assertEquals, assertMatch } from "@std/assert";
import { dirname, join, relative } from "@std/path";

const ROOT = new URL("../..", import.meta.url).pathname;

/** The rooms that each room of the root may import from. `main` means the files of the root. */
const ARROWS: Readonly<Record<string, readonly string[]>> = {
  base: [],
  lvm: ["base"],
  csi: ["base", "lvm"],
  k8s: ["base", "lvm"],
  cli: ["base", "csi", "k8s", "lvm"],
  plugin: ["base", "cli", "csi", "k8s", "lvm"],
  main: ["base", "cli", "csi", "lvm"],
};

/** The rooms of the product. */
const MODULES = Object.keys(ARROWS).filter((module) => module !== "main");

/**
 * The floors of the folders of a module, the lowest first. A folder imports from lower floors and from the module's own
 * files, never from its own floor or a higher one.
 */
const FLOORS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  lvm: [
    ["settings"],
    ["model"],
    ["client"],
    ["host"],
    ["pools", "transfers", "disks", "encryption"],
    ["inventory"],
    ["deletion", "health", "doctor"],
    ["volumes"],
    ["snapshots", "staging", "status"],
    ["copies", "differences", "group_snapshots"],
  ],
  cli: [["help", "metrics"]],
  k8s: [
    ["api"],
    ["client"],
    ["runtime"],
    ["agent", "disks", "sidecars", "transfers"],
    ["scheduling", "snapshotter", "resizer"],
    ["provisioner"],
    ["service"],
    ["handover"],
  ],
  plugin: [["node_removal", "import", "move"], ["diagnosis"], ["ui"], ["subcommands"]],
};

/** The most rooms that the root and some modules may have, and the most arrows between the rooms of a module. */
const CEILINGS: Readonly<Record<string, { readonly rooms: number; readonly arrows: number }>> = {
  lvm: { rooms: 24, arrows: 130 },
  k8s: { rooms: 13, arrows: 50 },
};

/** Files of a module itself that put its folders together, so that they are above all of them. */
const ON_TOP: readonly string[] = [
  ...["lvm/machine.ts", "lvm/volume_service.ts"],
  ...["cli/cluster_process.ts", "cli/controller.ts", "cli/node.ts", "plugin/main.ts"],
];

/** The limit of files in a folder, without tests. */
const MAX_FILES: Readonly<Record<string, number>> = {
  cli: 20,
  csi: 22,
  "lvm/model": 15,
  "lvm/settings": 15,
  "k8s/agent": 15,
  "k8s/api": 15,
  "k8s/handover": 18,
  "plugin/diagnosis": 15,
  "plugin/subcommands": 15,
};

/** Yields the files of the product, without tests and generated files. */
function* sources(folder: string): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(join(ROOT, folder))) {
    const path = join(folder, name);
    if (isDirectory) yield* sources(path);
    else if (name.endsWith(".ts") && !/_test\.ts$|_pb\.ts$/.test(name)) yield path;
  }
}

const files = MODULES.flatMap((module) => [...sources(module)]).concat(
  [...Deno.readDirSync(ROOT)].map(({ name }) => name).filter((name) => /\.ts$/.test(name) && !/_test\.ts$/.test(name)),
);

const texts = new Map(files.map((file) => [file, Deno.readTextFileSync(join(ROOT, file))]));

/** Yields the tests of a module of the product, or all files of another folder, with their text. */
function* testsBelow(folder: string): Generator<[file: string, text: string]> {
  for (const { name, isDirectory } of Deno.readDirSync(join(ROOT, folder))) {
    const path = join(folder, name);
    if (isDirectory) yield* testsBelow(path);
    else if (/\.(?:ts|js|css)$/.test(name) && !texts.has(path) && !name.endsWith("_pb.ts")) {
      yield [path, Deno.readTextFileSync(join(ROOT, path))];
    }
  }
}

/** Returns the specifiers that a file imports or re-exports, with dynamic imports and types. */
function specifiers(file: string): string[] {
  return [...texts.get(file)!.matchAll(/^(?:import|export)\b[^;]*?from\s+"([^"]+)"|\bimport\(\s*"([^"]+)"/gms)].map((
    match,
  ) => match[1] ?? match[2]!);
}

/** Returns the modules of the project that a file imports, as paths below the root. What browsers get is text to it. */
function imports(file: string): string[] {
  return specifiers(file).filter((specifier) => /^\..*\.(?:ts|json)$/.test(specifier)).map((specifier) =>
    relative(ROOT, join(ROOT, dirname(file), specifier))
  );
}

function moduleOf(path: string): string {
  const [module, ...rest] = path.split("/");
  return rest.length === 0 ? "main" : module!;
}

/** Returns the floor of a file within its module: 0 for the module's own files, Infinity for those on top of it. */
function floorOf(path: string): number {
  if (ON_TOP.includes(path)) return Infinity;
  const [module, folder, file] = path.split("/");
  if (file === undefined) return 0;
  return FLOORS[module!]!.findIndex((floor) => floor.includes(folder!)) + 1;
}

Deno.test("imports go plugin, main → cli → csi, k8s → lvm → base, and never back or across", () => {
  const wrong = files.flatMap((file) =>
    imports(file).flatMap((target) => {
      const [from, to] = [moduleOf(file), moduleOf(target)];
      return from === to || target === "deno.json" || ARROWS[from]?.includes(to) ? [] : [`${file} → ${target}`];
    })
  );
  assertEquals(wrong, []);
  assert(files.length > 150, "the test sees the files");
});

Deno.test("folders of a module import from lower floors only", () => {
  const wrong = files.flatMap((file) =>
    imports(file).flatMap((target) => {
      if (
        moduleOf(file) !== moduleOf(target) || !(moduleOf(file) in FLOORS) || dirname(file) === dirname(target)
      ) return [];
      return floorOf(file) > floorOf(target) ? [] : [`${file} → ${target}`];
    })
  );
  assertEquals(wrong, []);
});

Deno.test("no file imports itself by way of others", () => {
  const circles: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]) => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(" → "));
    if (path.includes(file) || done.has(file)) return;
    for (const target of imports(file)) if (texts.has(target)) visit(target, [...path, file]);
    done.add(file);
  };
  for (const file of files) visit(file, []);
  assertEquals(circles, []);
});

Deno.test("every folder has a floor, two files at least, and no more than fit on a page", () => {
  const folders = Map.groupBy(files.filter((file) => file.includes("/")), (file) => dirname(file));
  for (const [folder, { length }] of folders) {
    const [module, name, below] = folder.split("/");
    assertEquals(below, undefined, `${folder}: one level of folders`);
    if (name !== undefined) assert(FLOORS[module!]?.flat().includes(name), `${folder} has a floor`);
    const most = MAX_FILES[folder] ?? 14;
    assert(length >= 2 && length <= most, `${folder} has ${length} files, between 2 and ${most} are allowed`);
  }
});

Deno.test("the root has few rooms, lvm/ and k8s/ have few folders, and few arrows go between those", () => {
  const rooms = [...Deno.readDirSync(ROOT)].filter(({ name, isDirectory }) => isDirectory && !/^\.|^dist$/.test(name));
  assert(rooms.length <= 9, rooms.map(({ name }) => name).join());
  for (const [module, { rooms, arrows }] of Object.entries(CEILINGS)) {
    const own = files.filter((file) => moduleOf(file) === module);
    const pairs = own.flatMap((file) => imports(file).map((target) => [dirname(file), dirname(target)] as const));
    const found = new Set(pairs.filter(([from, to]) => from !== to && moduleOf(`${to}/x`) === module).map(String));
    assert(new Set(own.map((file) => dirname(file))).size <= rooms, module);
    assert(found.size <= arrows, `${module}: ${found.size} arrows`);
  }
});

Deno.test("lvm/ knows neither gRPC nor Kubernetes, and imports no npm package", () => {
  const outside = files.filter((file) => file.startsWith("lvm/")).flatMap((file) =>
    specifiers(file).filter((target) => !/^(?:\.|node:|@std\/)/.test(target)).map((target) => `${file} → ${target}`)
  );
  assertEquals(outside, []);
});

Deno.test("one file runs commands, one runs a user's kubectl, entry points exit, one maps kinds of failure to codes", () => {
  const having = (pattern: RegExp) => files.filter((file) => pattern.test(texts.get(file)!)).toSorted();
  assertEquals(having(/Deno\.(?:Command|run)\b|node:child_process/), ["lvm/exec.ts", "plugin/kubectl.ts"]);
  assertEquals(having(/Deno\.exit\b|process\.exit\b/), ["main.ts", "plugin/main.ts"]);
  assertEquals(having(/\bstatus\.NOT_FOUND\b/), ["csi/status.ts"]);
});

Deno.test("nothing opens a Unix socket of node:net, which closes each descriptor twice: grpc-js gets one of Deno", () => {
  const all = [...texts, ...[...MODULES, "tests"].flatMap((module) => [...testsBelow(module)])];
  const having = (pattern: RegExp) => all.filter(([, text]) => pattern.test(text)).map(([file]) => file);
  // a connection from another address of this machine, which Deno.connect() cannot make
  assertEquals(having(/^import (?!type )[^;]* from "node:net"/m), ["k8s/transfers/tls_test.ts"]);
  assertEquals(having(/^import \{[^}]*(?<!type )\bClient\b[^}]*\} from "@grpc\/grpc-js"/m), [
    "tests/contract/helpers/grpc_client.ts",
  ]);
  assertEquals(having(/\bimport\("node:http2"\)|^import (?!type )[^;]* from "node:http2"/m), []);
  assertEquals(having(/\bimport\("@grpc\/grpc-js"\)|\bbindAsync\b/), ["csi/grpc.ts"]);
  assertMatch(texts.get("csi/grpc.ts")!, /Deno\.listen\(\{ transport: "unix"/);
});

Deno.test("secrets are read in one place, by name, and listed nowhere", () => {
  const SECRETS = "k8s/sidecars/secrets.ts";
  assertEquals(files.filter((file) => texts.get(file)!.includes(`("v1", "Secret")`)), [SECRETS]);
  const importing = files.flatMap((file) => [
    ...texts.get(file)!.matchAll(/import \{(.*)\} from "[^"]*\/secrets\.ts"/g),
  ]);
  const names = new Set(importing.flatMap(([, list]) => list!.split(",").map((name) => name.trim())));
  assertEquals([...names].sort(), ["readSecret", "readSecretIfAllowed"]);
  assertEquals([...texts.get(SECRETS)!.matchAll(/client\.(\w+)\(/g)].map(([, call]) => call), ["get"]);
});
