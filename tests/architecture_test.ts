import { assert, assertEquals } from "@std/assert";
import { dirname, join, relative } from "@std/path";

const ROOT = new URL("..", import.meta.url).pathname;

/** Which rooms a room may import from; `main` stands for the files of the root. */
const ARROWS: Readonly<Record<string, readonly string[]>> = {
  lvm: [],
  csi: ["lvm"],
  k8s: ["lvm"],
  main: ["csi", "k8s", "lvm"],
};

/** The files of the product: not its tests, nor what is generated. */
function* sources(folder: string): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(join(ROOT, folder))) {
    const path = join(folder, name);
    if (isDirectory) yield* sources(path);
    else if (name.endsWith(".ts") && !/_test\.ts$|_pb\.ts$/.test(name)) yield path;
  }
}

function imports(path: string): string[] {
  const text = Deno.readTextFileSync(join(ROOT, path));
  return [...text.matchAll(/^(?:import|export)\b[^;]*?from\s+"([^"]+)"|\bimport\(\s*"([^"]+)"/gms)].map((match) =>
    match[1] ?? match[2]!
  );
}

function roomOf(path: string): string {
  const [room, ...rest] = path.split("/");
  return rest.length === 0 ? "main" : room!;
}

const files = ["csi", "lvm", "k8s"].filter((room) => {
  try {
    return Deno.statSync(join(ROOT, room)).isDirectory;
  } catch {
    return false;
  }
}).flatMap((room) => [...sources(room)]).concat(
  [...Deno.readDirSync(ROOT)].map(({ name }) => name).filter((name) => /\.ts$/.test(name) && !/_test\.ts$/.test(name)),
);

Deno.test("imports go main → csi, k8s → lvm, and never back or across", () => {
  const wrong = files.flatMap((file) =>
    imports(file).filter((target) => target.startsWith(".")).flatMap((target) => {
      const [from, to] = [roomOf(file), roomOf(relative(ROOT, join(ROOT, dirname(file), target)))];
      return from === to || ARROWS[from]?.includes(to) ? [] : [`${file} → ${target}`];
    })
  );
  assertEquals(wrong, []);
  assert(files.length > 20, "the test sees the files");
});

Deno.test("lvm/ knows neither gRPC nor Kubernetes, and imports no npm package", () => {
  const outside = files.filter((file) => file.startsWith("lvm/")).flatMap((file) =>
    imports(file).filter((target) => !/^(?:\.|node:|@std\/)/.test(target)).map((target) => `${file} → ${target}`)
  );
  assertEquals(outside, []);
});

Deno.test("one file runs commands, one exits the process, one maps kinds of failure to codes", () => {
  const having = (pattern: RegExp) => files.filter((file) => pattern.test(Deno.readTextFileSync(join(ROOT, file))));
  assertEquals(having(/Deno\.(?:Command|run)\b|node:child_process/), ["lvm/exec.ts"]);
  assertEquals(having(/Deno\.exit\b|process\.exit\b/), ["main.ts"]);
  assertEquals(having(/\bstatus\.NOT_FOUND\b/), ["csi/status.ts"]);
});

Deno.test("secrets are read in one place, by name, and listed nowhere", () => {
  const sources = files.map((file) => [file, Deno.readTextFileSync(join(ROOT, file))] as const);
  const naming = sources.filter(([, text]) => text.includes(`plural: "secrets"`)).map(([file]) => file);
  assertEquals(naming, ["k8s/sidecars/secrets.ts"]);
  const importing = sources.flatMap(([, text]) => [...text.matchAll(/import \{(.*)\} from "\.\/secrets\.ts"/g)]);
  assertEquals([...new Set(importing.map(([, names]) => names!.trim()))], ["readSecret"]);
  const [, text] = sources.find(([file]) => file === "k8s/sidecars/secrets.ts")!;
  assertEquals([...text.matchAll(/client\.(\w+)\(/g)].map(([, call]) => call), ["get"]);
});

Deno.test("files fit on a few screens", () => {
  const long = files.map((file) => [file, Deno.readTextFileSync(join(ROOT, file)).split("\n").length] as const).filter((
    [, lines],
  ) => lines > 450);
  assertEquals(long, []);
});
