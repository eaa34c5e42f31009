/**
 * What CHANGELOG.md says of a version. Its form is that of Keep a Changelog 1.1.0.
 *
 * @module
 */

/** The kinds of changes that Keep a Changelog knows. */
const KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"] as const;

/** One of {@linkcode KINDS}. */
export type ChangeKind = typeof KINDS[number];

/** A version of the changelog. */
export interface ChangelogEntry {
  /** The version, or `Unreleased`. */
  readonly version: string;
  /** The date as YYYY-MM-DD; undefined if the version is not released. */
  readonly date: string | undefined;
  /** The text below each kind. */
  readonly changes: ReadonlyMap<ChangeKind, string>;
}

/** Reads the text of a changelog, newest version first. @throws {Error} when it does not have the form */
export function readChangelog(text: string): ChangelogEntry[] {
  if (!text.startsWith("# Changelog\n")) throw new Error("read CHANGELOG.md: its first line must be: # Changelog");
  const entries = text.split(/^## /m).slice(1).map(readEntry);
  const dates = entries.flatMap(({ date }) => date ?? []);
  if (dates.join() !== dates.toSorted().toReversed().join()) {
    throw new Error("read CHANGELOG.md: the newest version must stand first");
  }
  const versions = entries.map(({ version }) => version);
  const twice = versions.find((version, index) => versions.indexOf(version) !== index);
  if (twice !== undefined) throw new Error(`read CHANGELOG.md: ${twice} is there twice`);
  return entries;
}

function readEntry(section: string): ChangelogEntry {
  const [title, ...lines] = section.split("\n");
  const [, version, date] = /^\[(Unreleased|\d+\.\d+\.\d+(?:-[\w.]+)?)\](?: - (\d{4}-\d\d-\d\d|unreleased))?$/
    .exec(title!) ?? [];
  if (version === undefined || (version === "Unreleased") !== (date === undefined)) {
    throw new Error(`read CHANGELOG.md: ${title}: must be [VERSION] - YYYY-MM-DD`);
  }
  if (date !== undefined && date !== "unreleased" && !isDate(date)) {
    throw new Error(`read CHANGELOG.md: ${title}: there is no such day`);
  }
  const changes = new Map<ChangeKind, string>();
  for (const part of lines.join("\n").split(/^### /m).slice(1)) {
    const [name, ...body] = part.split("\n");
    const kind = KINDS.find((known) => known === name);
    if (kind === undefined) throw new Error(`read CHANGELOG.md: ${title}: ${name}: must be ${KINDS.join(", ")}`);
    if (changes.has(kind)) throw new Error(`read CHANGELOG.md: ${title}: ${name} is there twice`);
    changes.set(kind, body.join("\n").trim());
  }
  return { version, date: date === "unreleased" ? undefined : date, changes };
}

function isDate(text: string): boolean {
  const date = new Date(`${text}T00:00:00Z`);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text);
}

/**
 * Returns the entry of a version.
 *
 * @param isDated whether it must have a date, as one that gets its tag
 * @throws {Error} when the version has no entry, no changes, or not the date that it needs
 */
export function changelogEntry(text: string, version: string, { isDated }: { isDated: boolean }): ChangelogEntry {
  const entry = readChangelog(text).find((entry) => entry.version === version);
  if (entry === undefined) throw new Error(`read CHANGELOG.md: it has no entry of version ${version}`);
  if ([...entry.changes.values()].every((body) => body === "")) {
    throw new Error(`read CHANGELOG.md: the entry of version ${version} has no changes`);
  }
  if (isDated && entry.date === undefined) {
    throw new Error(`read CHANGELOG.md: version ${version} has no date: write ## [${version}] - YYYY-MM-DD`);
  }
  return entry;
}
