/**
 * The topics of the help that both programs have.
 *
 * @module
 */

import { EXIT_MEANINGS, type Topic } from "../command_line.ts";

/** The exit statuses, which are the same for both programs. */
export const EXIT_STATUS_TOPIC: Topic = {
  summary: "What the exit status means",
  about: "A command ends with one of these exit statuses.",
  rows: EXIT_MEANINGS,
};

/** The variables that the file reads which unpacks itself, whatever its name. */
export const CACHE_VARIABLES: readonly (readonly [name: string, meaning: string])[] = [
  [
    "DENOLITH_CACHE",
    "Directory into which the executable unpacks itself at its first start, if it is one that does. Without it, the " +
    "first of CACHE_DIRECTORY (systemd's), /var/cache/denolith, XDG_CACHE_HOME/denolith and HOME/.cache/denolith.",
  ],
];
