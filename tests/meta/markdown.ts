/**
 * Reading the project's documents.
 *
 * @module
 */

/** Returns the text of a chapter. @throws {Error} when no chapter has this title */
export function chapter(document: string, title: string): string {
  const [, text] = document.split(`\n## ${title}\n`);
  if (text === undefined) throw new Error(`read a document: there is no chapter ${title}`);
  return text.split("\n## ")[0]!;
}

/** Returns the anchors of a document's headings, as Git forges make them. */
export function anchors(document: string): string[] {
  return [...document.replace(/```[^]*?```/g, "").matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
    "#" + title!.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-")
  );
}

/** Returns the lines for a shell in a text, block by block. */
export function shellBlocks(text: string): string[] {
  return [...text.matchAll(/```sh\n([^]*?)```/g)].map(([, lines]) => lines!);
}

/** Returns the inline code of a Markdown text. */
export function inlineCode(text: string): string[] {
  return [...text.replace(/```[^]*?```/g, "").matchAll(/`([^`]+)`/g)].map(([, code]) => code!);
}
