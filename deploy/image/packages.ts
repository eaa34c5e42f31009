import list from "./packages.txt" with { type: "text" };

/**
 * Returns the files that the image takes from Debian packages, by package: names of programs and libraries, and paths
 * of other files. packages.txt lists them in lines `package: file …`.
 *
 * @throws {Error} when a line is not of this form
 */
export function readPackages(text: string = list): ReadonlyMap<string, readonly string[]> {
  const packages = new Map<string, readonly string[]>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const [, name, files] = /^([a-z0-9][a-z0-9.+-]+): (\S.*)$/.exec(line) ?? [];
    if (name === undefined || files === undefined) throw new Error(`read packages.txt: ${JSON.stringify(line)}`);
    packages.set(name, [...packages.get(name) ?? [], ...files.split(" ")]);
  }
  return packages;
}
