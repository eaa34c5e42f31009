import guestInit from "./guest/init.sh" with { type: "text" };
import type { PayloadFile } from "./payload.ts";

/** The settings of the guest's init. */
export interface GuestSettings {
  /** Run by /bin/sh in /work. */
  readonly script: string;
  /** Variables for the script. */
  readonly env: Readonly<Record<string, string>>;
  readonly dataDisks: number;
  /** The mark after the script's output, between a zero byte and a line feed. */
  readonly endMark: string;
  /** True to send /work/out when the script has ended. */
  readonly sendsOut: boolean;
  /** True if the script has a terminal. */
  readonly terminal: boolean;
  /** The number of seconds after which the guest lists its processes; 0 for never. */
  readonly watch: number;
  /** True to load kernel modules that take seconds at the boot, instead of at their first use. */
  readonly slowModules: boolean;
}

/** Returns the files in /work by which the guest knows what to do. */
export function guestFiles(settings: GuestSettings): Record<string, PayloadFile> {
  const flag = (value: boolean) => value ? "1" : "0";
  const variables = {
    RIG_DATA_DISKS: String(settings.dataDisks),
    RIG_END: settings.endMark,
    RIG_OUT: flag(settings.sendsOut),
    RIG_SLOW_MODULES: flag(settings.slowModules),
    RIG_TERMINAL: flag(settings.terminal),
    RIG_WATCH: String(settings.watch),
  };
  return {
    ".rig/init": { text: guestInit, mode: 0o755 },
    ".rig/settings": { text: shellVariables(variables, "") },
    ".rig/env": { text: shellVariables(settings.env, "export ") },
    ".rig/script": { text: settings.script },
  };
}

/** Lines for the shell that set variables. */
function shellVariables(variables: Readonly<Record<string, string>>, prefix: "" | "export "): string {
  return Object.entries(variables).map(([name, value]) => {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw new Error(`set the variable "${name}" in the guest: a name is made of letters, digits and underscores`);
    }
    return `${prefix}${name}='${value.replaceAll("'", `'\\''`)}'\n`;
  }).join("");
}
