/**
 * Lists of node names in messages. A cluster may have thousands of nodes, and a message has to be readable.
 *
 * @module
 */

/** The number of names that a message lists. */
export const MAX_LISTED_NODES = 5;

/**
 * Returns node names as a message lists them: the first five, and the number of the others.
 *
 * @param separator text between two names
 */
export function listNodeNames(names: readonly string[], separator = ", "): string {
  const listed = names.slice(0, MAX_LISTED_NODES).join(separator);
  const more = names.length - MAX_LISTED_NODES;
  return more > 0 ? `${listed} and ${more} more` : listed;
}
