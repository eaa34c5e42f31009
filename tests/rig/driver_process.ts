/**
 * The processes of the driver in a guest, each in its container.
 *
 * @module
 */

/**
 * Returns the command that prints the id of the driver's process of a role.
 *
 * @param role `controller` or `node`, or a variable of the shell that has it
 */
export function pidCommand(role: string): string {
  return `pgrep -o -f "^/usr/bin/deno run .* /usr/bin/denolith ${role} "`;
}
