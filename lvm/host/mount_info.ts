/**
 * The format of the kernel's mount table (proc_pid_mountinfo(5)).
 *
 * @module
 */

/** A line of the table. */
export interface MountInfo {
  /** The device number of the filesystem, `major:minor`. */
  readonly deviceNumber: string;
  /** The path within the filesystem that is mounted. That of a removed file ends with `//deleted`. */
  readonly root: string;
  /** The path at which it is mounted. */
  readonly target: string;
  /** The options of the mount. */
  readonly options: readonly string[];
  /** The type of the filesystem. */
  readonly fsType: string;
  /** The source, as it was given to mount(2), or as the filesystem names it. */
  readonly source: string;
  /** The options of the filesystem. */
  readonly filesystemOptions: readonly string[];
}

/**
 * A line: ID, ID of the parent, device number, root, target, options, optional fields, a hyphen, type, source, options of
 * the filesystem. The source can be empty. Fields can have any character but a blank, a tab or the end of a line.
 */
const LINE = /^\d+ \d+ (\d+:\d+) ([^ ]+) (\/[^ ]*) ([^ ]+)(?: (?!- )[^ ]+)* - ([^ ]+) ([^ ]*) ([^ ][^\n]*)$/;

/**
 * Parses the table.
 *
 * @returns the mounts in the order of the table; `undefined` when there are none, or when a line cannot be parsed
 */
export function parseMountInfo(text: string): MountInfo[] | undefined {
  if (!text.endsWith("\n")) return undefined;
  const mounts: MountInfo[] = [];
  for (const line of text.slice(0, -1).split("\n")) {
    const match = LINE.exec(line);
    if (match === null) return undefined;
    const [deviceNumber, root, target, options, fsType, source, filesystemOptions] = match.slice(1).map(unescape);
    mounts.push({
      deviceNumber: deviceNumber!,
      root: root!,
      target: target!,
      fsType: fsType!,
      source: source!,
      options: options!.split(","),
      filesystemOptions: filesystemOptions!.split(","),
    });
  }
  return mounts;
}

/** Returns the paths at which something is mounted; none when the table cannot be parsed. */
export function mountPoints(text: string): string[] {
  return parseMountInfo(text)?.map(({ target }) => target) ?? [];
}

/** Replaces the octal codes that the kernel writes for blanks, tabs, ends of lines, backslashes and `#`. */
function unescape(field: string): string {
  return field.replace(/\\([01][0-7]{2})/g, (_, code: string) => String.fromCharCode(parseInt(code, 8)));
}
