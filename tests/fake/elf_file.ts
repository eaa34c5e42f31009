/** What {@linkcode elfFile} says that it needs. */
export interface ElfParts {
  readonly loader?: string;
  readonly libraries?: readonly string[];
  readonly folders?: readonly string[];
}

/** Size of the file's header, of a program header, and of an entry of the dynamic section. */
const SIZE = { header: 64, segment: 56, entry: 16 } as const;

/** Address at which the file is loaded. */
const ADDRESS = 0x400000;

/** Makes an ELF file (64 bits, little endian) that has nothing but what it needs: three segments, and the texts at the end. */
export function elfFile({ loader, libraries = [], folders = [] }: ElfParts): Uint8Array<ArrayBuffer> {
  const texts = [...libraries, ...folders.length > 0 ? [folders.join(":")] : []];
  const strings = new TextEncoder().encode(texts.map((text) => `${text}\0`).join(""));
  const loaderText = new TextEncoder().encode(loader === undefined ? "" : `${loader}\0`);
  const dynamicSize = (texts.length + 2) * SIZE.entry;
  const dynamicAt = SIZE.header + 3 * SIZE.segment;
  const loaderAt = dynamicAt + dynamicSize;
  const stringsAt = loaderAt + loaderText.length;
  const bytes = new Uint8Array(stringsAt + strings.length);
  const view = new DataView(bytes.buffer);
  bytes.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  view.setBigUint64(0x20, BigInt(SIZE.header), true);
  view.setUint16(0x36, SIZE.segment, true);
  view.setUint16(0x38, 3, true);
  const segments = [[1, 0, bytes.length], [2, dynamicAt, dynamicSize], [
    loader === undefined ? 0 : 3,
    loaderAt,
    loaderText.length,
  ]];
  for (const [index, [type, offset, size]] of segments.entries()) {
    const at = SIZE.header + index * SIZE.segment;
    view.setUint32(at, type!, true);
    view.setBigUint64(at + 0x08, BigInt(offset!), true);
    view.setBigUint64(at + 0x10, BigInt(ADDRESS + offset!), true);
    view.setBigUint64(at + 0x20, BigInt(size!), true);
  }
  const offsets = texts.map((_, index) => texts.slice(0, index).reduce((sum, text) => sum + text.length + 1, 0));
  const entries = [
    ...offsets.map((offset, index) => [index < libraries.length ? 1 : 29, offset]),
    [5, ADDRESS + stringsAt],
    [0, 0],
  ];
  for (const [index, [tag, value]] of entries.entries()) {
    view.setBigUint64(dynamicAt + index * SIZE.entry, BigInt(tag!), true);
    view.setBigUint64(dynamicAt + index * SIZE.entry + 8, BigInt(value!), true);
  }
  bytes.set(loaderText, loaderAt);
  bytes.set(strings, stringsAt);
  return bytes;
}
