/**
 * Targets: texts that users write, in parameters, objects and flags.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { RE2JS } from "re2js";
import { parseMountRoots, requireDriverName, socketPath } from "../../csi/driver_options.ts";
import { parseGroupLimits } from "../../csi/group_limits.ts";
import { parseGroupList, patternMatcher } from "../../csi/group_list.ts";
import { parseVolumeParameters, requireMkfsOptions } from "../../csi/parameters.ts";
import { requireName, requirePath } from "../../csi/request.ts";
import { requireNodeId } from "../../csi/topology.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { isDriverDeviceName, isDriverLvName, parseVolumeId } from "../../base/ids.ts";
import { ANY_GROUP, type GroupMatcher } from "../../lvm/model/groups.ts";
import { decode, encode } from "../../lvm/model/tags.ts";
import { parseOvercommit } from "../../lvm/pools/pool.ts";
import { formatQuantity, MAX_BYTES, parseQuantity } from "../../base/size.ts";
import { parseSizeOrPercent } from "../../lvm/settings/cow_size.ts";
import { FILESYSTEM_TYPES, type FilesystemType, mkfsCommand, parseMkfsOptions } from "../../lvm/settings/filesystem.ts";
import { formatIoLimitTag, parseIoLimitTag } from "../../lvm/settings/io_limits.ts";
import { checkMountFlags } from "../../lvm/settings/mount_flags.ts";
import { formatTrim, parseInterval, parseTrim } from "../../lvm/settings/trim.ts";
import { parseRates } from "../../lvm/staging/cgroups.ts";
import { parsed, within } from "./expect.ts";
import { changedText, oddTexts } from "./inputs.ts";
import { statelessTarget, type Target } from "./target.ts";

/** Milliseconds of processor time that parsing or matching one text may take. */
const TEXT_MS = 500;

const QUANTITIES = ["10Gi", "1.5Gi", "100M", "4096", "7Ei", "0.1", "1e3", "12E", "+5", "500m", "9223372036854775807"];

const MKFS_OPTIONS = [
  "-O has_journal,^extent -j -J size=8 -T ext3",
  "-m 0 -E lazy_itable_init=0,discard -O ^has_journal,64bit",
  "-b size=4k -d agcount=4,su=64k,sw=2 -m reflink=1 -L data",
  "-d single -m dup -O ^no-holes --csum xxhash -n 16k",
  "-T largefile -N 100000 -J size=64 -i 8192 -I 256",
];

const MOUNT_FLAGS = [
  "noatime",
  "data=ordered",
  "errors=remount-ro",
  "compress=zstd:3",
  "logbsize=256k",
  "ro",
  "discard",
  'context="system_u:object_r:container_file_t:s0:c1,c3"',
];

const EXT_FORBIDDEN_FLAGS = [
  "-c",
  "-d",
  "-D",
  "-e",
  "-F",
  "-l",
  "-M",
  "-n",
  "-o",
  "-q",
  "-S",
  "-t",
  "-U",
  "-v",
  "-V",
  "-z",
];

/** Words of which some must not reach mkfs or mount, wherever they stand. */
const DANGEROUS_WORDS = [
  ...[
    "/dev/sda",
    "../x",
    "offset=4096",
    "device=/dev/sda",
    "logdev=/dev/sda",
    "name=/etc/passwd",
    "remount",
    "bind",
    "loop",
  ],
  ...["list-all", "-U", "-F", "uuid=clear", "x,", ",x", " ", "\n", "-o", "'", "$(x)"],
];

/**
 * Flags of mkfs that no request may set: they choose another UUID, device, size or source of files, skip what mkfs checks, or
 * create nothing (mke2fs(8), mkfs.xfs(8), mkfs.btrfs(8)).
 */
const FORBIDDEN_FLAGS: Readonly<Record<FilesystemType, readonly string[]>> = {
  ...{ ext4: EXT_FORBIDDEN_FLAGS, ext3: EXT_FORBIDDEN_FLAGS, ext2: EXT_FORBIDDEN_FLAGS },
  xfs: ["-c", "-f", "-N", "-p", "-q", "-r", "-V"],
  btrfs: ["-b", "--byte-count", "-f", "--force", "-r", "--rootdir", "-u", "-U", "--uuid", "-V", "--version", "--help"],
};

/** Options of mkfs, put together of words for one filesystem. */
const mkfsTexts = fc.constantFrom(...MKFS_OPTIONS).chain((options) => {
  const words = options.split(" ");
  const flags = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...words.filter((word) => word.startsWith("-"))) },
    { weight: 1, arbitrary: fc.constantFrom(...Object.values(FORBIDDEN_FLAGS).flat()) },
  );
  const value = fc.constantFrom(...words, ...DANGEROUS_WORDS);
  const joined = fc.tuple(value, fc.constantFrom("", ",", "="), value).map((parts) => parts.join(""));
  const pair = fc.tuple(flags, fc.oneof(value, joined)).map((parts) => parts.join(" "));
  return fc.array(fc.oneof({ weight: 4, arbitrary: pair }, { weight: 1, arbitrary: value }), {
    minLength: 1,
    maxLength: 3,
  })
    .map((list) => list.join(" "));
});

/** Checks arguments of mkfs that come from a request. */
function checkMkfsWords(type: FilesystemType, words: readonly string[]): void {
  for (const word of words) assert(!DANGEROUS_FOR_MKFS.test(word), `mkfs gets ${JSON.stringify(word)}`);
  for (const word of words) assert(!FORBIDDEN_FLAGS[type].includes(word), `mkfs gets ${word}`);
  const featuresOf = (...flags: string[]) =>
    words.flatMap((_, at) => flags.includes(words[at - 1]!) ? words[at]!.split(",") : []);
  const isList = featuresOf("-O", "--features").some((feature) => feature.replace("^", "") === "list-all");
  assert(!isList, "mkfs lists features, and creates nothing");
  // A journal makes an ext3 of an ext2, which would not be taken for what was requested.
  const lastMention = featuresOf("-O").findLast((feature) => /^\^?has_journal$/.test(feature));
  const isJournaled = words.includes("-j") || words.includes("-J") ||
    (lastMention === undefined ? type === "ext3" : lastMention === "has_journal");
  if (type === "ext2" || type === "ext3") assertEquals(isJournaled, type === "ext3", `${type}: ${words.join(" ")}`);
  assertEquals(parseMkfsOptions(type, words.join(" ")), words, "they are read from a tag again");
}

/** A mount flag with something before or after it. */
const joinedFlags = fc.tuple(
  fc.constantFrom(...DANGEROUS_WORDS, ""),
  fc.constantFrom("", ",", "\n"),
  fc.constantFrom("barrier=1", ...MOUNT_FLAGS),
  fc.constantFrom("", ",", "\n"),
  fc.constantFrom(...DANGEROUS_WORDS, ""),
).map((parts) => parts.join(""));

/** What must never be an argument of mkfs: paths, other devices, offsets. A label may be any word. */
const DANGEROUS_FOR_MKFS = /[/\s;$`"'\\\0]|^-.+=|(?:^|,)(?:offset|device|logdev|rtdev|name|file|uuid)=/i;

/** What must never be a mount flag: the same, and other kinds of mounts. */
const DANGEROUS =
  /[/\s;$`"'\\\0]|^-.+=|(?:^|,)(?:offset|device|logdev|rtdev|name|file|remount|bind|loop|uuid)(?:=|,|$)/i;

const PATTERNS = [
  "data-[0-9]{1,3}",
  "(?:ssd|hdd)-.*",
  "^vg.+$",
  "(a|b|ab)*c",
  "(?:a?){999}(?:a?){999}",
  "[^a-z]{100}\\pL*",
  "(?i:Fast).*\\d+",
  "((((a{2}){3}){4}){5})*",
  ".*.*.*.*.*.*.*.*=.*",
];

const GROUP_LISTS = ["data", "data,fast-1", "/data-[0-9]+/,other", " a , /b,c/ ", "/.*/"];

const GROUP_LIMITS = ["data=100", "data=100, /fast-[a-z]{1,3}/=500,/.*/=10", "/a,b/=5"];

/** Names of groups to match: usual ones, and the longest ones that make patterns slow. */
const GROUP_NAMES = ["data", "data-12", "ssd-fast", "a".repeat(127), "ab".repeat(63), "-".repeat(127)];

const PATHS = ["/var/lib/kubelet/pods/x/volumes/y/mount", "/a", "unix:///run/csi/csi.sock", "/run/a,/mnt/b"];

/** Requires that two matchers match the same names. */
function requireSameMatches(a: GroupMatcher, b: GroupMatcher): void {
  for (const name of GROUP_NAMES.slice(0, 3)) {
    assertEquals(a.matches(name), b.matches(name), `${a} and ${b} differ on ${name}`);
  }
}

/** Matches names, and checks that an LVMVolume can record the matcher. */
function checkMatcher(matcher: GroupMatcher): void {
  for (const name of GROUP_NAMES) within(TEXT_MS, `matching ${name}`, () => matcher.matches(name));
  if (matcher !== ANY_GROUP) requireSameMatches(parseGroupList(String(matcher)), matcher); // an LVMVolume has none then
}

/** Returns the exact value of a decimal number with a suffix, as a fraction, or `undefined` for another text. */
function exactQuantity(text: string): { numerator: bigint; denominator: bigint } | undefined {
  const [, whole, fraction = "", suffix = ""] = /^(\d+)(?:\.(\d+))?(k|[MGTPE]i?|Ki)?$/.exec(text) ?? [];
  if (whole === undefined) return undefined;
  const power = " KMGTPE".indexOf(suffix.charAt(0).toUpperCase());
  const unit = suffix === "" ? 1n : (suffix.endsWith("i") ? 1024n : 1000n) ** BigInt(power);
  return { numerator: BigInt(whole + fraction) * unit, denominator: 10n ** BigInt(fraction.length) };
}

function checkQuantity(text: string): void {
  const bytes = parseQuantity(text);
  const kubernetesBytes = quantityToBytes(text);
  if (bytes === undefined) return;
  const { numerator, denominator } = exactQuantity(text)!;
  assertEquals(bytes, (numerator + denominator - 1n) / denominator);
  assertEquals(kubernetesBytes, bytes);
  assert(bytes >= 0n && bytes <= MAX_BYTES);
  assertEquals(parseQuantity(formatQuantity(bytes)), bytes);
}

/** Reads a text by every parser of small values; what is accepted can be written and read again. */
function checkSmallValues(text: string): void {
  const limits = parseIoLimitTag(text);
  if (limits !== undefined) assertEquals(parseIoLimitTag(formatIoLimitTag(limits)), limits);
  const trim = parseTrim(text);
  const written = trim && formatTrim(trim);
  if (written !== undefined) assertEquals(parseTrim(written), trim);
  const size = parseSizeOrPercent(text);
  if (size !== undefined) assert("bytes" in size ? size.bytes > 0n : size.percent > 0n && size.percent <= 100n);
  const interval = parseInterval(text);
  assert(interval === undefined || (interval >= 600_000 && interval <= 90 * 86_400_000));
  const overcommit = parseOvercommit(text);
  assert(overcommit === undefined || overcommit >= 0n);
  assertEquals(decode(encode(text)), text);
  assert(/^[A-Za-z0-9_+.\-/=!]*$/.test(encode(text)));
  decode(text);
  for (const rate of Object.values(parseRates(text, "253:0"))) assert(rate === "max" || rate >= 0n);
}

/** Reads a text by every parser of names and paths; what is accepted is safe in a command line. */
function checkNames(text: string): void {
  parsed(["InvalidArgument"], () => requireName(text));
  const path = parsed(["InvalidArgument"], () => requirePath("path", text));
  // deno-lint-ignore no-control-regex
  if (path !== undefined) assert(/^\/[^\0-\x1f]+$/.test(path) && !/\/(?:\.\.?)?(?:\/|$)/.test(path), path);
  const socket = parsed(["InvalidArgument"], () => socketPath(text));
  assert(socket === undefined || /^\/.+\/.*\.sock$/s.test(socket));
  for (const root of parsed(["InvalidArgument"], () => parseMountRoots(text)) ?? []) {
    assertEquals(requirePath("root", root), root);
  }
  const driver = parsed(["InvalidArgument"], () => requireDriverName(text));
  assert(driver === undefined || /^[A-Za-z0-9.-]{1,63}$/.test(driver));
  const node = parsed(["InvalidArgument"], () => requireNodeId(text));
  assert(node === undefined || /^[A-Za-z0-9_.-]{1,63}$/.test(node));
  const id = parseVolumeId(text);
  assert(id === undefined || /^v1-[0-9a-f]{32}$/.test(id) && id === text);
  within(TEXT_MS, "isDriverDeviceName", () => isDriverDeviceName(text));
  if (isDriverLvName(text)) assert(/^[a-z0-9.-]+$/.test(text));
}

/** Parameters of a StorageClass, as pairs: a key can come twice in different cases. */
const classes = fc.array(
  fc.tuple(
    fc.oneof(
      fc.constantFrom(
        ...[
          "volumeGroup",
          "volumeGroupPattern",
          "vgpattern",
          "vgpattern",
          "fsType",
          "mkfsOptions",
          "shared",
          "erase",
          "layout",
        ],
        ...["stripes", "stripeSize", "mirrors", "thinProvision", "thinPool", "thinPoolSize", "discard", "fstrim"],
        ...["readIops", "writeBpsPerGiB", "storage", "scheduler", "VolGroup", "csi.storage.k8s.io/pv/name"],
      ),
      oddTexts,
    ),
    fc.oneof(
      fc.constantFrom("yes", "no", "data", "raid1", "raid5", "2", "64Ki", "10%", "max", "500", "xfs", "24h", "lvm"),
      changedText([...MKFS_OPTIONS, ...PATTERNS, ...QUANTITIES]),
      fc.constantFrom("snapshot1", "pool_tdata", "..", "-m 0 ".repeat(80), "x)|(?:data", "ta"),
    ),
  ),
  { maxLength: 6 },
);

/** The longest options of mkfs, in characters: they are in a tag, and the metadata area of a group is small. */
const MAX_MKFS_TEXT = 256;

/** Names that an LV can have, and those of them that LVM reserves (lvm(8), "VALID NAMES"). */
const LV_NAME = /^(?!\.{1,2}$)[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,126}$/;
const RESERVED_LV_NAME = /^(?:snapshot|pvmove)|_(?:tdata|tmeta|rimage|rmeta|mlog|vorigin|pmspare)/;

/** Requires that OpenEBS' pattern matches a group when it matches any part of the group's name, and only then. */
function checkUnanchoredPattern(pairs: readonly (readonly [string, string])[], groups: GroupMatcher): void {
  const pattern = pairs.findLast(([name]) => name === "vgpattern")?.[1];
  if (pattern === undefined || pairs.some(([name]) => /^vol(?:ume)?group/i.test(name))) return;
  const compiled = RE2JS.compile(pattern);
  for (const name of GROUP_NAMES.slice(0, 3)) {
    assertEquals(groups.matches(name), compiled.matcher(name).find(), `vgpattern ${pattern} and ${name}`);
  }
}

/** The targets. */
export const TEXT_TARGETS: readonly Target[] = [
  statelessTarget({
    name: "quantities",
    description: "sizes, rates, intervals and percentages",
    inputs: fc.oneof(
      changedText([...QUANTITIES, "ri500:wb4Mi/g", "d+24h", "20%", "1.5", "253:0 rbps=max riops=5"]),
      oddTexts,
    ),
    testRuns: 100,
    check: (text) =>
      within(TEXT_MS, "parsing", () => {
        checkQuantity(text);
        checkSmallValues(text);
      }),
  }),
  statelessTarget({
    name: "names",
    description: "names, ids, paths, sockets",
    inputs: fc.oneof(
      changedText([...PATHS, "pvc-1", "lvm.denolith.dev", "vol-11111111111111111111111111111111"]),
      oddTexts,
    ),
    testRuns: 100,
    check: (text) => within(TEXT_MS, "parsing", () => checkNames(text)),
  }),
  statelessTarget({
    name: "mkfs-options",
    description: "options of mkfs, in parameters and in tags",
    inputs: fc.record({
      type: fc.constantFrom(...FILESYSTEM_TYPES),
      text: fc.oneof(changedText(MKFS_OPTIONS), mkfsTexts),
    }),
    testRuns: 100,
    check: ({ type, text }) => {
      const words = within(TEXT_MS, "parsing", () => parsed(["InvalidArgument"], () => parseMkfsOptions(type, text)));
      checkMkfsWords(type, words ?? []);
      const { args } = mkfsCommand(type, "/dev/mapper/x", "u", words ?? []);
      assertEquals(args.filter((arg) => arg.startsWith("/")), ["/dev/mapper/x"]);
    },
  }),
  statelessTarget({
    name: "mount-flags",
    description: "mount flags of a capability",
    inputs: fc.record({
      type: fc.constantFrom(...FILESYSTEM_TYPES, ""),
      flag: fc.oneof(changedText(MOUNT_FLAGS, { maxChanges: 2 }), oddTexts, joinedFlags),
    }),
    testRuns: 100,
    check: ({ type, flag }) => {
      const known = FILESYSTEM_TYPES.find((each) => each === type);
      const check = () => parsed(["InvalidArgument"], () => (checkMountFlags(known, [flag]), true));
      if (!within(TEXT_MS, "parsing", check)) return;
      // mount(8) takes what is in quotes as one value
      const bare = flag.replace(
        /^context="([\w.,:-]+)"$/,
        (_, context: string) => `context=${context.replaceAll(",", "")}`,
      );
      assert(!DANGEROUS.test(bare) && !bare.includes(","), `mount gets ${flag}`);
    },
  }),
  statelessTarget({
    name: "group-patterns",
    description: "patterns and lists of volume groups, and limits by group: also the time that they take",
    inputs: fc.record({
      kind: fc.constantFrom("pattern", "list", "limits"),
      text: fc.oneof(
        changedText([...PATTERNS, ...GROUP_LISTS, ...GROUP_LIMITS]),
        fc.stringMatching(/^[()a?*+|{}0-9.\\pL[\]^]*$/),
      ),
    }),
    testRuns: 20,
    check: ({ kind, text }) => {
      const parse = () => {
        if (kind === "limits") return parseGroupLimits({ "read-iops-per-gib": text })("data") && undefined;
        return kind === "pattern" ? patternMatcher("x", text) : parseGroupList(text);
      };
      const matcher = within(TEXT_MS, "parsing", () => parsed(["InvalidArgument"], parse));
      if (matcher !== undefined) checkMatcher(matcher);
    },
  }),
  statelessTarget({
    name: "parameters",
    description: "the parameters of a StorageClass",
    inputs: fc.tuple(fc.boolean(), classes).map(([thin, list]) =>
      thin ? [["thinProvision", "yes"] as const, ...list] : list
    ),
    testRuns: 100,
    check: (pairs) => {
      const read = () => parseVolumeParameters(Object.fromEntries(pairs));
      const parameters = within(2 * TEXT_MS, "parsing", () => parsed(["InvalidArgument"], read));
      if (parameters === undefined) return;
      checkMatcher(parameters.groups);
      const words = parsed(["InvalidArgument"], () => requireMkfsOptions(parameters, parameters.type)) ?? [];
      assert(words.join(" ").length <= MAX_MKFS_TEXT, "options of mkfs that fill the metadata area");
      checkUnanchoredPattern(pairs, parameters.groups);
      const { thin } = parameters;
      assert(thin?.pool === undefined || (LV_NAME.test(thin.pool) && !RESERVED_LV_NAME.test(thin.pool)), thin?.pool);
    },
  }),
];
