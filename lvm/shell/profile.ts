/**
 * The settings under which the shell of lvm(8) answers as {@linkcode parseAnswer} reads it. Its formats can be set only
 * where it starts, and LVM takes them there from its configuration or from a profile in its own directory.
 *
 * @module
 */

import { type Command, commandError, type Exec } from "../exec.ts";
import { StorageError } from "../error.ts";
import { parseSettings } from "../model/configuration.ts";
import { REPORT_SETTINGS } from "../model/report_command.ts";
import { SHELL_PROFILE } from "./shell_process.ts";

/** The settings of the profile that the answers depend on. */
export const PROFILE_SETTINGS: Readonly<Record<string, string>> = {
  "log/report_command_log": "1",
  "log/command_log_selection": "log_context=shell",
  "report/output_format": "json",
  ...REPORT_SETTINGS,
};

/** The columns of the log that are read. */
const LOG_COLUMNS = ["type", "context", "object_type", "object_name", "message", "ret_code"].map((name) =>
  `log_${name}`
);

const PROFILE_COMMAND: Command = {
  program: "lvm",
  args: [
    "lvmconfig",
    ...["--type", "full", "--commandprofile", SHELL_PROFILE],
    ...Object.keys(PROFILE_SETTINGS),
    "log/command_log_cols",
  ],
  mutates: false,
};

/**
 * Checks that LVM has the profile, with the settings that the shell needs.
 *
 * @throws {StorageError} `FailedPrecondition` when a setting differs; `CommandFailed` when there is no such profile; those
 * of {@linkcode Exec.run}
 */
export async function requireProfile(exec: Exec): Promise<void> {
  const output = await exec.run(PROFILE_COMMAND);
  if (output.code !== 0) throw commandError(PROFILE_COMMAND, output);
  const values = parseSettings(output.stdout);
  const columns = values.get("command_log_cols")?.join(",").split(",") ?? [];
  const wrong = Object.entries(PROFILE_SETTINGS).flatMap(([name, value]) => {
    const actual = values.get(name.split("/")[1]!)?.join(",");
    return actual === value ? [] : [`${name}=${actual ?? ""}`];
  });
  const missing = LOG_COLUMNS.filter((column) => !columns.includes(column));
  if (wrong.length + missing.length === 0) return;
  throw new StorageError(
    "FailedPrecondition",
    `LVM's profile ${SHELL_PROFILE} is not as LVM has it: ${
      [...wrong, ...missing.map((name) => `no ${name}`)].join(", ")
    }`,
  );
}
