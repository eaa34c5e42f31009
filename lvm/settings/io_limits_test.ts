import { assert, assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import {
  describeRates,
  formatIoLimitParameters,
  formatIoLimitTag,
  IO_LIMIT_PARAMETERS,
  IO_LIMIT_VALUES,
  type IoLimits,
  isSameLimits,
  parseIoLimitParameters,
  parseIoLimitTag,
  ratesFor,
} from "./io_limits.ts";

const GiB = 1n << 30n;

const read = (parameters: Record<string, string>) => parseIoLimitParameters(new Map(Object.entries(parameters)));

const LIMITS: readonly [Record<string, string>, IoLimits, string][] = [
  [{}, {}, ""],
  [{ readIops: "2" }, { readIops: { rate: 2n, perGiB: false } }, "ri2"],
  [{ writeIops: "4294967294" }, { writeIops: { rate: 4294967294n, perGiB: false } }, "wi4294967294"],
  [{ readBps: "4Mi" }, { readBps: { rate: 4n << 20n, perGiB: false } }, "rb4Mi"],
  [{ writeBps: "1000" }, { writeBps: { rate: 1000n, perGiB: false } }, "wb1000"],
  [{ readIopsPerGiB: "1", writeBps: "max" }, { readIops: { rate: 1n, perGiB: true }, writeBps: "max" }, "ri1/g:wbmax"],
  [{ writeBpsPerGiB: "1Mi" }, { writeBps: { rate: 1n << 20n, perGiB: true } }, "wb1Mi/g"],
];

Deno.test.each(LIMITS)(
  "limits are parsed, and formatted as parameters and for a tag: %j",
  (parameters, limits, tag) => {
    assertEquals(read(parameters), limits);
    assertEquals(formatIoLimitParameters(limits), parameters);
    assertEquals(formatIoLimitTag(limits), tag);
    assertEquals(parseIoLimitTag(tag), limits);
  },
);

Deno.test.each([
  ...["", "0", "1", "-5", "+5", "1.5", "1e3", "0x10", "10k", " 10", "10 ", "ten", "Max", "4294967295", "99999999999"],
  `${1n << 64n}`,
])("readIoLimits() refuses %j as a number of operations", (value) => {
  const { kind, message } = assertThrows(() => read({ readIops: value }), StorageError);
  assertEquals(kind, "InvalidArgument");
  assert(message.startsWith("parameter readIops "), message);
});

Deno.test("parseIoLimitParameters() shortens long values in its error", () => {
  const { message } = assertThrows(() => read({ readIops: "9".repeat(10_000) }), StorageError);
  assert(message.length < 300, message);
});

Deno.test.each(["", "0", "1", "-5", "1.5Q", "4mi", "4MiB", `${1n << 63n}`, `${1n << 64n}`, "16Ei", "NaN"])(
  "readIoLimits() refuses %j as a number of bytes",
  (value) => void assertThrows(() => read({ writeBps: value }), StorageError, "parameter writeBps "),
);

Deno.test("parseIoLimitParameters() refuses one limit set twice, and max for each GiB", () => {
  assertThrows(() => read({ readBps: "1Mi", readBpsPerGiB: "1Mi" }), StorageError, "only one");
  assertThrows(() => read({ readBpsPerGiB: "max" }), StorageError, "readBpsPerGiB");
  assertThrows(() => read({ readBpsPerGiB: "0" }), StorageError, "at least 1");
});

Deno.test.each(["ri", "ri0", "riten", "xx5", "ri5:ri6", "ri5:", "rimax/g", "ri5/h", "readIops=5", "ri5\n"])(
  "parseShortIoLimits() knows nothing of %j",
  (tag) => assertEquals(parseIoLimitTag(tag), undefined),
);

Deno.test("ratesFor() counts a part of a GiB as a whole one, and stays within what the kernel accepts", () => {
  const limits = read({ readIopsPerGiB: "10", writeIopsPerGiB: "1", readBps: "4Mi", writeBps: "max" });
  assertEquals(ratesFor(limits, 3n * GiB), { readIops: 30n, writeIops: 3n, readBps: 4n << 20n, writeBps: "max" });
  assertEquals(ratesFor(limits, GiB + 1n).readIops, 20n);
  assertEquals(ratesFor(limits, 32n << 20n), { readIops: 10n, writeIops: 2n, readBps: 4n << 20n, writeBps: "max" });
  const huge = read({ readIopsPerGiB: "4294967294", readBpsPerGiB: "7Ei" });
  assertEquals(ratesFor(huge, 2n * GiB), { readIops: 4294967294n, readBps: (1n << 63n) - 1n });
  assertEquals(describeRates(ratesFor(limits, GiB)), "readIops 10, writeIops 2, readBps 4Mi, writeBps max");
});

Deno.test("isSameLimits() ignores the order of limits", () => {
  assert(isSameLimits(read({ readIops: "5", writeIops: "6" }), read({ writeIops: "6", readIops: "5" })));
  assert(!isSameLimits(read({ readIops: "5" }), read({ readIopsPerGiB: "5" })));
  assert(!isSameLimits(read({ readIops: "max" }), {}));
});

Deno.test("IO_LIMIT_VALUES documents each parameter once, with its unit and its smallest value", () => {
  assertEquals(IO_LIMIT_VALUES.flatMap(({ parameters }) => parameters).toSorted(), IO_LIMIT_PARAMETERS.toSorted());
  for (const { parameters, values } of IO_LIMIT_VALUES) {
    for (const parameter of parameters) {
      const isPerGiB = parameter.endsWith("PerGiB");
      assert(values.startsWith(parameter.includes("Bps") ? "bytes per second" : "operations per second"), values);
      assertEquals([values.includes("for each GiB"), values.includes("`max`")], [isPerGiB, !isPerGiB]);
      const min = /`(\d)`/.exec(values)![1]!;
      const isAccepted = (rate: number) => parseIoLimitTag(formatIoLimitTag(read({ [parameter]: `${rate}` })));
      assert(isAccepted(Number(min)) !== undefined);
      assertThrows(() => read({ [parameter]: `${Number(min) - 1}` }), StorageError, parameter);
    }
  }
});
