import { assertEquals } from "@std/assert";
import { encryptionOf, formatFormat, type FormatState, isFormatBegun, parseFormat, smallestVolume } from "./format.ts";

const UUID = "11111111-2222-4333-8444-555555555555";

const STATES: readonly (readonly [string, FormatState])[] = [
  ["raw", { state: "raw" }],
  ["wanted:ext4", { state: "unformatted", type: "ext4" }],
  [`formatting:xfs:${UUID}`, { state: "formatting", type: "xfs", uuid: UUID }],
  [`formatted:btrfs:${UUID}`, { state: "formatted", type: "btrfs", uuid: UUID }],
  ["luks2:wanted:raw", { state: "raw", luks: { state: "wanted" } }],
  ["luks2:wanted:wanted:ext4", { state: "unformatted", type: "ext4", luks: { state: "wanted" } }],
  [`luks2:formatting:${UUID}:wanted:ext4`, {
    ...{ state: "unformatted", type: "ext4" },
    luks: { state: "formatting", uuid: UUID },
  }],
  [`luks2:formatted:${UUID}:formatted:xfs:${UUID}`, {
    ...{ state: "formatted", type: "xfs", uuid: UUID },
    luks: { state: "formatted", uuid: UUID },
  }],
  [`luks2:formatted:${UUID}:copied:ext4`, {
    ...{ state: "copied", type: "ext4" },
    luks: { state: "formatted", uuid: UUID },
  }],
  [`luks2:formatted:${UUID}:renewing:ext4:${UUID}`, {
    ...{ state: "renewing", type: "ext4", uuid: UUID },
    luks: { state: "formatted", uuid: UUID },
  }],
];

Deno.test("a format is written in a few characters and read from them", () => {
  for (const [text, format] of STATES) {
    assertEquals(formatFormat(format), text);
    assertEquals(parseFormat(text), format);
  }
});

Deno.test("parseFormat() knows no other text", () => {
  const texts = ["", "luks2", "luks2:", "luks2:wanted", "luks2:wanted:", "luks2:opened:raw", "luks1:wanted:raw"];
  for (
    const text of [
      ...texts,
      `luks2:formatted:raw`,
      `luks2:formatting::raw`,
      "luks2:wanted:luks2:wanted:raw",
      "copied:ext4",
      `renewing:ext4:${UUID}`,
    ]
  ) {
    assertEquals(parseFormat(text), undefined, text);
  }
});

Deno.test("isFormatBegun() tells that something may be on the device", () => {
  const begun = STATES.map(([text]) => text).filter(isFormatBegun);
  assertEquals(begun, STATES.map(([text]) => text).filter((text) => text.includes("formatt")));
});

Deno.test("encryptionOf() and smallestVolume() count the header of an encrypted volume", () => {
  assertEquals(STATES.map(([, format]) => encryptionOf(format)).filter((each) => each === "luks2").length, 6);
  assertEquals([smallestVolume(undefined, "none"), smallestVolume(undefined, "luks2")], [0n, (16n << 20n) + 1n]);
  assertEquals(smallestVolume("xfs", "luks2") - smallestVolume("xfs", "none"), 16n << 20n);
});
