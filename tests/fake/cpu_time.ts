/**
 * The processor time of this process, for tests of how long something takes: unlike the time of day, it does not depend on what
 * else the machine does.
 *
 * @module
 */

import { cpuUsage } from "node:process";

/** Returns the processor time that this process has used, in milliseconds. */
export function cpuMs(): number {
  const { user, system } = cpuUsage();
  return (user + system) / 1000;
}
