/**
 * The tags that version 0.1.0 can read.
 *
 * @module
 */

import { readRecords } from "./recorded.ts";

const { formats } = readRecords<{ formats: readonly string[] }>("tag_formats.json");

/** The formats of later tags, each with the reason why version 0.1.0 may ignore it. */
const LATER_TAGS: readonly { readonly format: string; readonly reason: string }[] = [
  {
    format: "denolith\\.group=v1-[0-9a-f]{32}:[0-9]{1,4}(:new)?",
    reason: "each snapshot of a group is a snapshot like any other; that version can delete it alone",
  },
  {
    format: "denolith\\.from=[a-z0-9.-]{1,253}",
    reason:
      "a volume that is filled from another node: version 0.1.0 finds no source on its node, and gives up the copy",
  },
  {
    format: "denolith\\.held",
    reason:
      "a volume that is being moved to another node; that version lets pods use it again, and no move goes on without " +
      "an agent that takes part in transfers",
  },
  {
    format: "denolith\\.luks",
    reason:
      "a snapshot of an encrypted volume, or a deleted volume; that version erases it without its key slots first",
  },
];

/** Returns the tags of the driver that version 0.1.0 cannot read. */
export function unreadableTags(driver: string, tags: Iterable<string>): string[] {
  const patterns = [...formats, ...LATER_TAGS.map(({ format }) => format)].map((format) => patternOf(driver, format));
  return [...tags].filter((tag) => tag.startsWith("denolith") && !patterns.some((pattern) => pattern.test(tag)));
}

/** Returns the formats of version 0.1.0 that none of the tags has. */
export function unusedFormats(driver: string, tags: readonly string[]): string[] {
  return formats.filter((format) => !tags.some((tag) => patternOf(driver, format).test(tag)));
}

function patternOf(driver: string, format: string): RegExp {
  return new RegExp(`^${format.replaceAll("DRIVER", RegExp.escape(driver))}$`);
}
