import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../base/error.ts";
import { requireCapabilities, requireCapability } from "./capability.ts";
import { VolumeCapability_AccessMode_Mode as Mode, VolumeCapabilitySchema } from "./proto/csi_pb.ts";

type Init = MessageInitShape<typeof VolumeCapabilitySchema>;

function capability(accessType: NonNullable<Init["accessType"]>, mode = Mode.SINGLE_NODE_WRITER) {
  return create(VolumeCapabilitySchema, { accessMode: { mode }, accessType });
}

const BLOCK = { case: "block", value: {} } as const;

function mount(fsType = "", volumeMountGroup = "") {
  return { case: "mount", value: { fsType, volumeMountGroup } } as const;
}

function assertRefused(call: () => unknown, words: string): void {
  assertEquals(assertThrows(call, StorageError, words).kind, "InvalidArgument");
}

Deno.test("requireCapability() knows which modes allow one target only, and which are read-only", () => {
  const parse = (mode: Mode) => {
    const { exclusive, readOnly } = requireCapability(capability(BLOCK, mode));
    return { exclusive, readOnly };
  };
  assertEquals(parse(Mode.SINGLE_NODE_WRITER), { exclusive: true, readOnly: false });
  assertEquals(parse(Mode.SINGLE_NODE_SINGLE_WRITER), { exclusive: true, readOnly: false });
  assertEquals(parse(Mode.SINGLE_NODE_MULTI_WRITER), { exclusive: false, readOnly: false });
  assertEquals(parse(Mode.SINGLE_NODE_READER_ONLY), { exclusive: true, readOnly: true });
});

Deno.test("requireCapability() refuses modes of several nodes, and what is missing", () => {
  const modes = [
    Mode.UNKNOWN,
    Mode.MULTI_NODE_READER_ONLY,
    Mode.MULTI_NODE_SINGLE_WRITER,
    Mode.MULTI_NODE_MULTI_WRITER,
  ];
  for (const mode of modes) assertRefused(() => requireCapability(capability(BLOCK, mode)), `${Mode[mode]}: not supp`);
  assertRefused(() => requireCapability(undefined), "missing");
  const withoutMode = create(VolumeCapabilitySchema, { accessType: BLOCK });
  assertRefused(() => requireCapability(withoutMode), "UNKNOWN");
  const withoutType = create(VolumeCapabilitySchema, { accessMode: { mode: Mode.SINGLE_NODE_WRITER } });
  assertRefused(() => requireCapability(withoutType), "neither block nor mount");
  assertRefused(() => requireCapability(capability(mount("ext4", "100"))), "volume_mount_group");
  assertRefused(() => requireCapability(capability(mount("vfat"))), 'fs_type "vfat": not supported');
});

Deno.test("requireCapabilities() returns the one kind of volume that has them all", () => {
  const kindOf = (...types: NonNullable<Init["accessType"]>[]) =>
    requireCapabilities(types.map((type) => capability(type)));
  assertEquals(kindOf(BLOCK, BLOCK), { kind: "block" });
  assertEquals(kindOf(mount()), { kind: "mount", type: undefined });
  assertEquals(kindOf(mount(), mount("xfs"), mount("xfs")), { kind: "mount", type: "xfs" });
  assertRefused(() => kindOf(), "volume_capabilities: missing");
  for (const types of [[BLOCK, mount()], [mount(), BLOCK], [mount("xfs"), mount("ext4")]]) {
    assertRefused(() => kindOf(...types), "not several");
  }
});
