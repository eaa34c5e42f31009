import manifest from "../deno.json" with { type: "json" };

/** The permission set of deno.json under which the driver runs. */
export const PERMISSION_SET = "denolith";

/** V8's flags for the driver: docs/adr/0002. */
export const V8_FLAGS = "--optimize-for-size";

/** The name of the driver's one module, beside its configuration. */
export const MODULE = "main.js";

/**
 * Deno's flags for the driver, before `--config` and its module: under its permission set, without questions, and without a
 * network to fetch code from.
 */
export const LAUNCH_FLAGS: readonly string[] = [
  "run",
  "--quiet",
  "--no-prompt",
  "--cached-only",
  "--no-remote",
  "--no-npm",
  `--v8-flags=${V8_FLAGS}`,
  `-P=${PERMISSION_SET}`,
];

/** What a permission is limited to: nothing, all, or a list, as deno.json has it. */
type PermissionScope = boolean | readonly string[] | { readonly allow?: boolean | readonly string[] };

/** What of deno.json concerns a start. */
export interface Manifest {
  readonly unstable?: readonly string[];
  readonly permissions: Readonly<Record<string, Readonly<Record<string, PermissionScope>>>>;
}

/** Settings of {@linkcode launchConfig}. */
export interface LaunchOptions {
  /** Whether the module lies in a file of its own: to start itself as a Worker, the driver must then be allowed to read it. */
  readonly moduleIsFile: boolean;
}

/**
 * The configuration that the driver is started with, as JSON: the permission set and the unstable features of deno.json, and
 * nothing from the folders around it.
 *
 * @throws {Error} when deno.json has no such set
 */
export function launchConfig({ moduleIsFile }: LaunchOptions, from: Manifest = manifest): string {
  const set = from.permissions[PERMISSION_SET];
  if (set === undefined) {
    throw new Error(`make the launch configuration: deno.json has no permissions.${PERMISSION_SET}`);
  }
  const config = {
    lock: false,
    nodeModulesDir: "none",
    workspace: [], // a root: Deno does not look for one in the folders above
    unstable: from.unstable ?? [],
    permissions: { [PERMISSION_SET]: moduleIsFile ? { ...set, read: withModule(set.read) } : set },
  };
  return JSON.stringify(config);
}

/** A scope for reading that has the module in it. Deno takes relative paths from the configuration's folder. */
function withModule(scope: PermissionScope = false): PermissionScope {
  if (scope === true) return true;
  if (scope === false) return [`./${MODULE}`];
  if ("length" in scope) return [...scope, `./${MODULE}`];
  return { ...scope, allow: withModule(scope.allow) as boolean | readonly string[] };
}
