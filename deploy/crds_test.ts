import { assert, assertEquals } from "@std/assert";
import { FILESYSTEM_TYPES } from "../lvm/settings/filesystem.ts";
import { IO_LIMIT_PARAMETERS } from "../lvm/settings/io_limits.ts";
import { parseQuantity } from "../base/size.ts";
import { parseSizeOrPercent } from "../lvm/settings/cow_size.ts";
import { ERASURES } from "../lvm/model/tags.ts";
import { DEFINITIONS, SCHEMA_ANNOTATION, SCHEMA_VERSION } from "../k8s/client/definitions.ts";
import { admissionPolicy } from "../tests/fake/cluster/admission_policy.ts";
import { readObjects } from "./objects.ts";

/** A part of a schema (OpenAPI v3, as far as it is used here). */
interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly enum?: readonly string[];
  readonly required?: readonly string[];
  readonly format?: string;
  readonly pattern?: string;
  readonly maxLength?: number;
  readonly maxItems?: number;
  readonly "x-kubernetes-validations"?: readonly { readonly rule: string; readonly message: string }[];
}

const crds = readObjects("crds");
const schemas = new Map(
  crds.map((crd) => [crd.spec.names.kind, crd.spec.versions[0].schema.openAPIV3Schema as Schema]),
);

/** Returns every part of a schema with its path, such as `.status.volumeGroups[].name`. */
function* parts(schema: Schema, path = ""): Generator<[string, Schema]> {
  yield [path, schema];
  for (const [name, property] of Object.entries(schema.properties ?? {})) yield* parts(property, `${path}.${name}`);
  if (schema.items !== undefined) yield* parts(schema.items, `${path}[]`);
}

function everyPart(): [string, Schema][] {
  return [...schemas].flatMap(([kind, schema]) => [...parts(schema, kind)]);
}

function part(path: string): Schema {
  const found = everyPart().find(([of]) => of === path);
  assert(found !== undefined, `there is no ${path}`);
  return found[1];
}

Deno.test("the definitions are of our group, for the whole cluster, with a status of its own", () => {
  assertEquals([...schemas.keys()].sort(), ["LVMImport", "LVMMove", "LVMNode", "LVMSnapshot", "LVMVolume"]);
  for (const { metadata, spec: { group, scope, names, versions } } of crds) {
    assertEquals([group, scope], ["lvm.denolith.dev", "Cluster"]);
    assertEquals(metadata.name, `${names.plural}.${group}`);
    assertEquals(names.plural, `${names.kind.toLowerCase()}s`);
    assertEquals(names.categories, ["denolith"]);
    assertEquals(versions.map((version: { name: string }) => version.name), ["v1alpha1"]);
    assertEquals(versions[0].subresources, { status: {} });
  }
});

/** The schemas of the version {@linkcode SCHEMA_VERSION}, as a checksum. */
const SCHEMAS = { version: 1, sha256: "4e4860d471625bd1c65066ba2d520aea4accb251141ba3bd2c1f68496936a51e" };

Deno.test("the version of the schemas is raised with each change of them, and all definitions have it", async () => {
  const parts = crds.map(({ spec: { names, versions } }) => [
    names.kind,
    versions.map(({ name, schema, selectableFields }: Record<string, unknown>) => ({ name, schema, selectableFields })),
  ]);
  // what only people read may change
  const text = JSON.stringify(parts, (key, value) => key === "description" && typeof value === "string" ? "" : value);
  const sha256 = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))).toHex();
  const hint =
    "raise SCHEMA_VERSION and deploy/chart/templates/_helpers.tpl, unless no release has it; then write SCHEMAS";
  assertEquals({ version: SCHEMA_VERSION, sha256 }, SCHEMAS, hint);
  assertEquals(
    crds.map(({ metadata }) => [metadata.name, metadata.annotations?.[SCHEMA_ANNOTATION]]),
    DEFINITIONS.map((name) => [name, `${SCHEMA_VERSION}`]),
  );
});

Deno.test.each<[string | undefined, string | undefined, boolean]>([
  [undefined, "1", true],
  ["1", "1", true],
  ["9", "10", true],
  ["other", "1", true],
  ["1", "99", true],
  ["10", "9", false],
  ["1", "other", false],
  ["1", undefined, false],
  [undefined, undefined, true],
])("the policy lets a definition of version %j become one of version %j: %j", (before, after, isAllowed) => {
  const definition = (version: string | undefined) => ({
    metadata: { name: DEFINITIONS[0], ...(version !== undefined && { annotations: { [SCHEMA_ANNOTATION]: version } }) },
  });
  const messages = admissionPolicy("denolith-definitions")({
    oldObject: definition(before),
    object: definition(after),
  });
  assertEquals(messages!.length, isAllowed ? 0 : 1);
});

Deno.test("the policy about definitions is about all of them, and binds", () => {
  const [policy, binding] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"].map((wanted) =>
    readObjects("manifests").find(({ kind, metadata }) => kind === wanted && metadata.name === "denolith-definitions")!
  );
  const [{ resources, resourceNames, operations }] = policy!.spec.matchConstraints.resourceRules;
  assertEquals([resources, resourceNames, operations], [["customresourcedefinitions"], DEFINITIONS, ["UPDATE"]]);
  assertEquals([policy!.spec.failurePolicy, binding!.spec.policyName], ["Fail", policy!.metadata.name]);
  assertEquals(binding!.spec.validationActions, ["Deny"]);
});

Deno.test("every field has a type and a description for kubectl explain", () => {
  const undocumented = everyPart().filter(([path, { type, description }]) =>
    !type || !description?.endsWith(".") && !path.endsWith(".metadata")
  );
  assertEquals(undocumented.map(([path]) => path), []);
  assert(everyPart().length > 80, "the test sees the fields");
});

Deno.test("schemas do not describe metadata, as the API server requires", () => {
  for (const kind of schemas.keys()) assertEquals(part(`${kind}.metadata`), { type: "object" });
});

Deno.test("no field is without bounds, so that the rules that read it are cheap and objects stay small", () => {
  const unbounded = everyPart().filter(([path, schema]) => {
    if (/^\w+\.(?:apiVersion|kind)$/.test(path)) return false;
    if (schema.type === "array") return schema.maxItems === undefined;
    return schema.type === "string" && !schema.enum && !schema.format && schema.maxLength === undefined;
  });
  assertEquals(unbounded.map(([path]) => path), []);
});

Deno.test("columns and selectable fields are fields that there are", () => {
  for (const { spec: { names, versions: [version] } } of crds) {
    const paths = [...version.additionalPrinterColumns, ...version.selectableFields ?? []].map(({ jsonPath }) =>
      jsonPath
    );
    for (const path of paths) {
      if (!path.startsWith(".metadata.")) part(names.kind + path);
    }
    const bySelection = (version.selectableFields ?? []).map(({ jsonPath }: { jsonPath: string }) => jsonPath);
    assertEquals(bySelection, ["LVMNode", "LVMMove", "LVMImport"].includes(names.kind) ? [] : [".spec.nodeName"]);
  }
});

Deno.test("of a volume's spec all but size, limits and node is immutable, and the schema says so", () => {
  const immutable = Object.entries(part("LVMVolume.spec").properties!).filter(([, schema]) =>
    schema["x-kubernetes-validations"]?.some(({ rule }) => rule === "self == oldSelf")
  ).map(([name]) => name);
  const all = Object.keys(part("LVMVolume.spec").properties!);
  assertEquals(all.filter((name) => !immutable.includes(name)).sort(), [
    "copy",
    "held",
    "imports",
    "ioLimits",
    "nodeName",
    "size",
    "sizeLimit",
  ]);
  const documentedAsImmutable = all.filter((name) => /Immutable\.$/.test(part(`LVMVolume.spec.${name}`).description!));
  assertEquals(documentedAsImmutable, immutable);
});

Deno.test("an optional field of a volume's spec that is immutable can be neither added nor removed", () => {
  const { properties, required, "x-kubernetes-validations": rules = [] } = part("LVMVolume.spec");
  const optional = Object.keys(properties!).filter((name) =>
    !required!.includes(name) && !["sizeLimit", "ioLimits", "held"].includes(name)
  );
  const changeable = optional.filter((name) =>
    !rules.some(({ rule }) => rule.includes(`has(self.${name}) == has(oldSelf.${name})`))
  );
  assertEquals(changeable, []);
  assert(optional.length > 10, "the test sees the fields");
});

Deno.test("a snapshot's spec is immutable as a whole", () => {
  assertEquals(part("LVMSnapshot.spec")["x-kubernetes-validations"]?.map(({ rule }) => rule), ["self == oldSelf"]);
});

Deno.test("the enums of a volume's spec are the driver's", () => {
  assertEquals(part("LVMVolume.spec.fsType").enum, [...FILESYSTEM_TYPES]);
  assertEquals(part("LVMVolume.spec.erase").enum, [...ERASURES]);
  assertEquals(Object.keys(part("LVMVolume.spec.ioLimits").properties!), [...IO_LIMIT_PARAMETERS]);
});

Deno.test.each([
  "1",
  "4096",
  "1.5Gi",
  "10Gi",
  "100M",
  "1k",
  "",
  "-1",
  "1e3",
  "1Zi",
  "1.",
  ".5",
  "10 Gi",
  "1m",
  "12345678901234567890",
])(
  "the schema takes %s for a size if the driver does",
  (text: string) => {
    const sizes = everyPart().filter(([path, { pattern }]) =>
      pattern !== undefined && /[sS]ize$|sizeLimit$|free$|availableVirtual$/.test(path)
    );
    assert(sizes.length > 8, "the test sees the fields");
    for (const [path, { pattern, maxLength }] of sizes) {
      assert(maxLength !== undefined && maxLength >= 32, path);
      assertEquals(new RegExp(pattern!).test(text), parseQuantity(text) !== undefined, path);
    }
  },
);

Deno.test.each(["1%", "7%", "99%", "100%", "10Gi", "1.5G", "0%", "101%", "-1%", "1.5%", "%", "", "much"])(
  "the schema takes %s for a snapshot's COW space if the driver does",
  (text: string) => {
    const { pattern } = part("LVMSnapshot.spec.cowSize");
    assertEquals(new RegExp(pattern!).test(text), parseSizeOrPercent(text) !== undefined);
  },
);

Deno.test("every rule has a message", () => {
  const rules = everyPart().flatMap(([path, schema]) =>
    (schema["x-kubernetes-validations"] ?? []).map(({ rule, message }) => [path, rule, message] as const)
  );
  assert(rules.length > 15, "the test sees the rules");
  assertEquals(rules.filter(([, , message]) => !message), []);
});
