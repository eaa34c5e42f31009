/**
 * Random requests of the CSI protocol, made from the descriptors of their types.
 *
 * @module
 */

import {
  create,
  type DescField,
  type DescMessage,
  type DescMethodUnary,
  fromJson,
  type JsonValue,
  ScalarType,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import fc from "fast-check";
import { Controller, Identity, Node } from "../../csi/proto/csi_pb.ts";
import { unaryMethods } from "../../csi/service.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { oddTexts } from "./inputs.ts";

/** The calls of the services on the driver's socket, by name. */
export const METHODS: ReadonlyMap<string, DescMethodUnary> = new Map(
  [Identity, Controller, Node].flatMap((service) => unaryMethods(service)).map((method) => [method.name, method]),
);

/** A request: a message as JSON, in which {@linkcode FOLDER} stands for the mount root, or bytes. */
export interface Request {
  readonly [key: string]: string;
  /** The name of the call. */
  readonly method: string;
  /** The message as JSON text; absent where `bytes` has it. */
  readonly json: string;
  /** The bytes in base64; they need not be a message. */
  readonly bytes: string;
}

/** The word in a message for the folder below which volumes may be mounted. */
export const FOLDER = "@FOLDER@";

/** Names of the volumes and the snapshot that exist before the requests. */
export const EXISTING = { mounted: "one", block: "two", snapshot: "snap" } as const;

const mostly = (texts: readonly string[], weight = 4): fc.Arbitrary<string> =>
  fc.oneof({ weight, arbitrary: fc.constantFrom(...texts) }, { weight: 1, arbitrary: oddTexts });

const ids = mostly([
  ...[EXISTING.mounted, EXISTING.block, "none"].map(volumeIdOf),
  snapshotIdOf(EXISTING.snapshot),
]);

const paths = mostly(
  ["/staging", "/target", "/target/deeper", "/staging/../x", "/💾 x", `/${"d".repeat(300)}`, ""].map((path) =>
    FOLDER + path
  ),
);

const parameterNames = mostly([
  ...["volumeGroup", "volumeGroupPattern", "fsType", "mkfsOptions", "shared", "erase", "layout", "mirrors", "stripes"],
  ...[
    "stripeSize",
    "thinProvision",
    "thinPool",
    "thinPoolSize",
    "discard",
    "fstrim",
    "readIops",
    "writeBps",
    "snapSize",
  ],
], 8);

const parameterValues = mostly([
  ...["test-small", "test-large", "test-.*", "ext4", "xfs", "btrfs", "-m 0", "-L data", "yes", "no", "zero", "none"],
  ...["raid1", "striped", "linear", "2", "64Ki", "pool", "10%", "100Mi", "24h", "500", "max", "4Mi"],
], 8);

/** The values of fields, by their names. */
const FIELDS: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  name: mostly([EXISTING.mounted, EXISTING.snapshot, "three", "four"]),
  volumeId: ids,
  sourceVolumeId: ids,
  snapshotId: ids,
  startingToken: ids,
  stagingTargetPath: paths,
  targetPath: paths,
  volumePath: paths,
  volumePublishPath: paths,
  fsType: mostly(["", "ext4", "ext3", "ext2", "xfs", "btrfs"]),
  mountFlags: fc.array(mostly(["noatime", "ro", "discard", "data=ordered", "nosuid"]), { maxLength: 2 }),
  volumeMountGroup: fc.oneof({ weight: 8, arbitrary: fc.constant("") }, { weight: 1, arbitrary: oddTexts }),
  mode: fc.oneof({ weight: 4, arbitrary: fc.constantFrom(1, 7) }, {
    weight: 1,
    arbitrary: fc.constantFrom(0, 2, 3, 5, 6, 99, -1),
  }),
  parameters: fc.dictionary(parameterNames, parameterValues, { maxKeys: 3 }),
  mutableParameters: fc.dictionary(parameterNames, parameterValues, { maxKeys: 1 }),
  segments: fc.dictionary(mostly([TOPOLOGY_KEY]), mostly(["node-1", "node-2"]), { maxKeys: 2 }),
};

const sizes = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(0n, 1n, 32n << 20n, 64n << 20n, 1n << 30n) },
  { weight: 1, arbitrary: fc.bigInt(-(1n << 63n), (1n << 63n) - 1n) },
);

function scalars(type: ScalarType): fc.Arbitrary<unknown> {
  switch (type) {
    case ScalarType.STRING:
      return oddTexts;
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.BYTES:
      return fc.uint8Array({ maxLength: 20 });
    case ScalarType.INT64:
      return sizes;
    default:
      return fc.oneof(fc.constantFrom(0, 1, 2), fc.integer());
  }
}

function valuesOf(field: DescField): fc.Arbitrary<unknown> {
  const known = FIELDS[field.localName];
  if (known !== undefined) return known;
  const one = field.message !== undefined
    ? messages(field.message)
    : field.enum !== undefined
    ? fc.integer({ min: -1, max: 10 })
    : scalars(field.scalar ?? ScalarType.INT32);
  if (field.fieldKind === "list") return fc.array(one, { maxLength: 3 });
  return field.fieldKind === "map" ? fc.dictionary(oddTexts, oddTexts, { maxKeys: 2 }) : one;
}

/** Returns messages of a type, in which each field may be missing. */
function messages(type: DescMessage): fc.Arbitrary<Record<string, unknown>> {
  const [plain, unions] = [type.fields.filter(({ oneof }) => oneof === undefined), type.oneofs];
  const fields = Object.fromEntries(plain.map((field) => [field.localName, maybe(valuesOf(field))]));
  const cases = Object.fromEntries(unions.map(({ localName, fields }) => [
    localName,
    maybe(fc.oneof(...fields.map((field) => valuesOf(field).map((value) => ({ case: field.localName, value }))))),
  ]));
  return fc.record({ ...fields, ...cases }).map((message) =>
    Object.fromEntries(Object.entries(message).filter(([, value]) => value !== undefined))
  );
}

function maybe<T>(values: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> {
  return fc.option(values, { nil: undefined, freq: 8 });
}

const MiB = 1n << 20n;

/** Returns the capability of a filesystem, or of a block device. */
function capability(fsType: string | undefined, mountFlags: readonly string[] = []): unknown {
  const accessMode = { mode: 7 }; // several pods of a node
  if (fsType === undefined) return { accessMode, accessType: { case: "block", value: {} } };
  return { accessMode, accessType: { case: "mount", value: { fsType, mountFlags } } };
}

/** Returns a request for a volume. */
function newVolume(name: string, parameters: Record<string, string> = {}, more: Record<string, unknown> = {}): unknown {
  const capacityRange = { requiredBytes: 32n * MiB };
  return { name, capacityRange, volumeCapabilities: [capability("ext4")], parameters, ...more };
}

const [mounted, block] = [volumeIdOf(EXISTING.mounted), volumeIdOf(EXISTING.block)];
const [third, snapshotId] = [volumeIdOf("three"), snapshotIdOf(EXISTING.snapshot)];
const [stagingTargetPath, targetPath] = [`${FOLDER}/staging`, `${FOLDER}/target`];
const [ext4, device] = [capability("ext4"), capability(undefined)];
const fromSnapshot = { volumeContentSource: { type: { case: "snapshot", value: { snapshotId } } } };
const fromVolume = { volumeContentSource: { type: { case: "volume", value: { volumeId: mounted } } } };

/** Requests that succeed, alone or after others of them, or in which one value must be refused; by their calls. */
const TYPICAL: Readonly<Record<string, readonly unknown[]>> = {
  CreateVolume: [
    newVolume("three"),
    newVolume("three", { mkfsOptions: "-m 0 -L $(x)" }),
    newVolume("three", { mkfsOptions: "-b 4096 -E stride=4" }),
    newVolume("three", {}, { volumeCapabilities: [capability("ext4", ["noatime", "data=ordered"])] }),
    newVolume("three", { thinProvision: "yes", erase: "none" }),
    newVolume("three", { thinProvision: "yes", thinPool: "$(x)" }),
    newVolume("three", { volumeGroup: "$(x)" }),
    newVolume("three", { volumeGroupPattern: "test-.*", readIops: "500" }),
    newVolume("three", {}, fromSnapshot),
    newVolume("three", {}, fromVolume),
    newVolume("three", {}, { capacityRange: { requiredBytes: -1n } }),
    newVolume("three", {}, { capacityRange: { requiredBytes: 64n * MiB, limitBytes: 32n * MiB } }),
    newVolume("four", {}, { volumeCapabilities: [device] }),
  ],
  DeleteVolume: [mounted, block, third].map((volumeId) => ({ volumeId })),
  ControllerExpandVolume: [mounted, third].map((volumeId) => ({
    volumeId,
    capacityRange: { requiredBytes: 64n * MiB },
    volumeCapability: ext4,
  })),
  ControllerModifyVolume: [{ volumeId: mounted, mutableParameters: { readIops: "100" } }],
  ControllerGetVolume: [{ volumeId: block }],
  CreateSnapshot: [{ name: "three", sourceVolumeId: mounted }, { name: "four", sourceVolumeId: third }],
  DeleteSnapshot: [{ snapshotId }],
  ListVolumes: [{ maxEntries: 1 }],
  NodeStageVolume: [
    ...[mounted, third].map((volumeId) => ({ volumeId, stagingTargetPath, volumeCapability: ext4 })),
    { volumeId: mounted, stagingTargetPath, volumeCapability: capability("ext4", ["noatime", "$(x)"]) },
    { volumeId: block, stagingTargetPath: `${FOLDER}/other`, volumeCapability: device },
  ],
  NodePublishVolume: [
    ...[mounted, third].map((volumeId) => ({ volumeId, stagingTargetPath, targetPath, volumeCapability: ext4 })),
    { volumeId: block, stagingTargetPath: `${FOLDER}/other`, targetPath: `${FOLDER}/device`, volumeCapability: device },
  ],
  NodeUnpublishVolume: [{ volumeId: mounted, targetPath }, { volumeId: block, targetPath: `${FOLDER}/device` }],
  NodeUnstageVolume: [mounted, third].map((volumeId) => ({ volumeId, stagingTargetPath })),
  NodeExpandVolume: [{ volumeId: mounted, volumePath: stagingTargetPath }],
  NodeGetVolumeStats: [{ volumeId: mounted, volumePath: stagingTargetPath }],
};

/** The calls that are drawn more often, since others need a volume in use. */
const FREQUENT = ["NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "CreateVolume"];

/** Requests that mostly succeed: one of their fields may have another value. */
const typical: fc.Arbitrary<Request> = fc.constantFrom(...Object.keys(TYPICAL), ...FREQUENT).chain((name) => {
  const { input } = METHODS.get(name)!;
  const names = [...input.fields.filter(({ oneof }) => oneof === undefined), ...input.oneofs].map(({ localName }) =>
    localName
  );
  const changed = fc.oneof(
    { weight: 2, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: fc.constantFrom(...names) },
  );
  return fc.tuple(fc.constantFrom(...TYPICAL[name]!), messages(input), changed).map(([request, other, field]) => {
    const message = { ...request as object, ...(field !== undefined && field in other && { [field]: other[field] }) };
    return { method: name, json: JSON.stringify(toJson(input, create(input, message))), bytes: "" };
  });
});

/** The life of one volume up to some step, undisturbed: most options of a volume take effect when it is used. */
const lives: fc.Arbitrary<readonly Request[]> = fc.tuple(
  fc.constantFrom(...TYPICAL["CreateVolume"]!),
  fc.integer({ min: 2, max: 6 }),
).map(([creation, length]) => {
  const volumeId = volumeIdOf((creation as { name: string }).name);
  const { volumeCapabilities: [volumeCapability] } = creation as { volumeCapabilities: [unknown] };
  const path = `${FOLDER}/life`;
  const staged = { volumeId, stagingTargetPath, volumeCapability };
  const steps: [method: string, request: unknown][] = [
    ["CreateVolume", creation],
    ["NodeStageVolume", staged],
    ["NodePublishVolume", { ...staged, targetPath: path }],
    ["NodeUnpublishVolume", { volumeId, targetPath: path }],
    ["NodeUnstageVolume", { volumeId, stagingTargetPath }],
    ["DeleteVolume", { volumeId }],
  ];
  return steps.slice(0, length).map(([method, request]) => {
    const { input } = METHODS.get(method)!;
    return {
      method,
      json: JSON.stringify(toJson(input, create(input, request as Record<string, unknown>))),
      bytes: "",
    };
  });
});

const methods = fc.constantFrom(...METHODS.values());

/** Requests whose messages are well-formed. */
const wellFormed: fc.Arbitrary<Request> = methods.chain((method) =>
  messages(method.input).map((message) => ({
    method: method.name,
    json: JSON.stringify(toJson(method.input, create(method.input, message))),
    bytes: "",
  }))
);

/** Requests whose bytes were changed. */
const changedBytes: fc.Arbitrary<Request> = fc.tuple(wellFormed, fc.nat(), fc.uint8Array({ maxLength: 8 })).map(
  ([request, at, bytes]) => {
    const message = [...encode(request, "/tmp")];
    message.splice(at % (message.length + 1), bytes.length % 3, ...bytes);
    return { method: request.method, json: "", bytes: Uint8Array.from(message).toBase64() };
  },
);

/** Sequences of requests. */
export const requests: fc.Arbitrary<readonly Request[]> = fc.array(
  fc.oneof(
    { weight: 2, arbitrary: lives },
    ...[typical, wellFormed].map((arbitrary) => ({ weight: 8, arbitrary: arbitrary.map((request) => [request]) })),
    { weight: 1, arbitrary: changedBytes.map((request) => [request]) },
  ),
  { minLength: 1, maxLength: 25 },
).map((list) => list.flat());

/** Returns the bytes of a request. @param folder the mount root */
export function encode({ method, json, bytes }: Request, folder: string): Uint8Array {
  if (json === "") return Uint8Array.fromBase64(bytes);
  const { input } = METHODS.get(method)!;
  return toBinary(input, fromJson(input, JSON.parse(json.replaceAll(FOLDER, folder)) as JsonValue));
}
