import { assert, assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import { parseGroupList } from "../../csi/group_list.ts";
import { parseVolumeParameters } from "../../csi/parameters.ts";
import { readObjects } from "../../deploy/objects.ts";
import { ioLimitsOf, lvmVolumeFor, requireCompatible, volumeRequestOf } from "../../k8s/api/volume_mapping.ts";
import { parametersWith, parametersWithout, requestWith, settingOf } from "../../tests/fake/settings.ts";
import { StorageError } from "../../base/error.ts";
import { differences, type VolumeRequest } from "../inventory/volume.ts";
import { describeLayout } from "../model/layout.ts";
import { parseVolumeTags, volumeTags } from "../model/tags.ts";
import { IO_LIMIT_PARAMETERS } from "./io_limits.ts";
import { SETTING_NAMES, type SettingName, settingsOf } from "./settings.ts";

const DRIVER = "lvm.denolith.dev";

/** The fields of `LVMVolume.spec` that no parameter sets. */
const FIELDS_OF_REQUESTS = [
  "driverName",
  "requestName",
  "nodeName",
  "size",
  "sizeLimit",
  "volumeMode",
  "source",
  "sourceNode",
  "copy",
  "imports",
  "held",
  "adoptsVolume",
];

const spec = readObjects("crds").find(({ metadata }) => metadata.name === "lvmvolumes.lvm.denolith.dev")!
  .spec.versions[0].schema.openAPIV3Schema.properties.spec;

function objectFor(request: Awaited<ReturnType<typeof requestWith>>) {
  const object = lvmVolumeFor(request, { driver: DRIVER, nodeName: "n1" });
  return { ...object, status: { volumeGroup: groupOf(request) } };
}

/** Returns the volume group of a volume: the one that its request names, or else another one. */
function groupOf({ groups }: VolumeRequest): string {
  return groups.matches("other") ? "other" : "data";
}

/** Returns the value at a path such as `layout.type`. */
// deno-lint-ignore no-explicit-any
function at(value: any, path: readonly string[]): unknown {
  return path.reduce((outer, name) => outer?.[name], value);
}

/** Parses parameters into a form that can be compared. */
function parse(parameters: Readonly<Record<string, string>>) {
  const parsed = parseVolumeParameters(parameters);
  return { ...parsed, groups: String(parsed.groups) };
}

function everySetting(body: (name: SettingName) => void | Promise<void>): () => Promise<void> {
  return async () => {
    for (const name of SETTING_NAMES) await body(name);
  };
}

Deno.test(
  "csi/parameters.ts accepts each value of each setting, and the value has an effect",
  everySetting((name) => {
    const [given, without] = [parametersWith(name), parametersWithout(name)];
    assert(given.length > 0, `${name} has values`);
    for (const parameters of given) assertNotEquals(parse(parameters), parse(without), JSON.stringify(parameters));
    const { default: defaultValue } = settingOf(name);
    if (typeof defaultValue === "string") {
      assertEquals(parse({ ...without, [name]: defaultValue }), parse(without), name);
    }
  }),
);

Deno.test(
  "a setting is refused without the settings that it requires",
  everySetting((name) => {
    if (settingOf(name).requires === undefined) return;
    for (const { [name]: value } of parametersWith(name)) {
      assertThrows(() => parseVolumeParameters({ [name]: value! }), StorageError, name);
    }
  }),
);

Deno.test("the settings of IO limits are those of io_limits.ts", () => {
  assertEquals(settingsOf("limits").map(([name]) => name as string), [...IO_LIMIT_PARAMETERS]);
});

Deno.test(
  "each setting changes its property of the request, and no other",
  everySetting(async (name) => {
    const without = await requestWith(parametersWithout(name));
    for (const parameters of parametersWith(name)) {
      const request = await requestWith(parameters);
      const properties = Object.keys({ ...without, ...request });
      const changed = properties.filter((each) => text(at(request, [each])) !== text(at(without, [each])));
      assertEquals(changed, [settingOf(name).property], JSON.stringify(parameters));
    }
  }),
);

Deno.test(
  "each setting with a tag is recorded by that tag and read from it, and no other setting changes a tag",
  everySetting(async (name) => {
    const { tag, property } = settingOf(name);
    const before = volumeTags(DRIVER, await requestWith(parametersWithout(name)));
    for (const parameters of parametersWith(name)) {
      const request = await requestWith(parameters);
      const tags = volumeTags(DRIVER, request);
      const added = tags.filter((each) => !before.includes(each));
      assertEquals(added.map((each) => tag !== null && each.startsWith(tag)), tag === null ? [] : [true], name);
      if (tag !== null) assertEquals(at(parseVolumeTags(DRIVER, tags), [property]), at(request, [property]), name);
    }
  }),
);

Deno.test(
  "each setting is recorded in its field of LVMVolumes, which is in their schema, and read from it",
  everySetting(async (name) => {
    const { field, property } = settingOf(name);
    const path = field.split(".");
    assert(at(spec.properties, path.join(".properties.").split(".")), `${field} is in the schema`);
    const before = objectFor(await requestWith(parametersWithout(name)));
    for (const parameters of parametersWith(name)) {
      const request = await requestWith(parameters);
      const object = objectFor(request);
      assertNotEquals(at(object.spec, path), undefined, name);
      assertNotEquals(at(object.spec, path), at(before.spec, path), name);
      const read = { ...volumeRequestOf(object, parseGroupList), limits: ioLimitsOf(object) };
      assertEquals(text(at(read, [property])), text(at(request, [property])), name);
    }
  }),
);

Deno.test("each field of an LVMVolume records a setting, or is part of every request", () => {
  const recorded = SETTING_NAMES.map((name) => settingOf(name).field.split(".")[0]!);
  assertEquals([...new Set([...FIELDS_OF_REQUESTS, ...recorded])].sort(), Object.keys(spec.properties).sort());
});

Deno.test(
  "a recorded volume satisfies its own request, and a request with another setting unless it defines the kind",
  everySetting(async (name) => {
    const { definesKind } = settingOf(name);
    const other = await requestWith(parametersWithout(name));
    for (const parameters of parametersWith(name)) {
      const request = await requestWith(parameters);
      const object = objectFor(request);
      requireCompatible(object, volumeRequestOf(object, parseGroupList), ["n1"]);
      requireCompatible(object, request, ["n1"]);
      const otherObject = objectFor(other);
      if (definesKind) assertThrows(() => requireCompatible(otherObject, request, ["n1"]), StorageError, "but it is");
      else requireCompatible(otherObject, request, ["n1"]);
    }
  }),
);

Deno.test(
  "a volume with the properties that its tags and LVM record satisfies its request",
  everySetting(async (name) => {
    for (const parameters of parametersWith(name)) {
      const request = await requestWith(parameters);
      const { format, source } = parseVolumeTags(DRIVER, volumeTags(DRIVER, request))!;
      const { range, layout, thin } = request;
      const shape = { size: range.required, group: groupOf(request), layout: describeLayout(layout), thin };
      assertEquals(differences({ ...shape, format, source }, request), [], name);
    }
  }),
);

/** Returns a value as text, so that matchers and sizes can be compared. */
function text(value: unknown): string {
  return typeof value === "object" && value !== null && "matches" in value
    ? String(value)
    : JSON.stringify(value, (_, each) => typeof each === "bigint" ? `${each}` : each) ?? "undefined";
}
