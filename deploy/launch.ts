import manifest from "../deno.json" with { type: "json" };

/** Name of the permission set in deno.json that the driver runs with. */
export const PERMISSION_SET = "denolith";

/** Name of the permission set in deno.json that the kubectl plugin runs with: it may run kubectl, and nothing else. */
export const PLUGIN_PERMISSION_SET = "kubectl-denolith";

/** File name of the bundled kubectl plugin, next to {@linkcode MODULE}. */
export const PLUGIN_MODULE = "kubectl_denolith.js";

/**
 * V8 flags of the driver (docs/adr/0002): the interpreter alone. The compilers and their code take 9 MB, and save no time: the
 * driver waits for commands. The process also makes no memory that is executable. The chart gives the controller other flags.
 */
export const V8_FLAGS = "--lite-mode";

/**
 * The variables that the driver starts with, as NAME=VALUE. Those of glibc (mallopt(3)) halve its memory: one arena for all threads, most of
 * which are idle; and thresholds that do not grow, so that buffers go back to the system when they are released.
 */
export const LAUNCH_ENV = [
  "DENO_NO_UPDATE_CHECK=1",
  "MALLOC_ARENA_MAX=1",
  "MALLOC_MMAP_THRESHOLD_=65536",
  "MALLOC_TRIM_THRESHOLD_=65536",
  `DENO_V8_FLAGS=${V8_FLAGS}`,
] as const;

/** File name of the bundled main thread, next to its configuration. */
export const MODULE = "main.js";

/** File name of the bundled worker, next to {@linkcode MODULE}. */
export const WORKER_MODULE = "worker.js";

/** Deno's flags before the permission set, `--config` and a module: without prompts, and without downloads of code. */
export const RUN_FLAGS: readonly string[] = [
  "run",
  "--quiet",
  "--no-prompt",
  "--cached-only",
  "--no-remote",
  "--no-npm",
];

/** Deno's flags for the driver, before `--config` and the module. */
export const LAUNCH_FLAGS: readonly string[] = [...RUN_FLAGS, `-P=${PERMISSION_SET}`];

/** Scope of a permission in deno.json: none, all, or a list. */
type PermissionScope = boolean | readonly string[] | { readonly allow?: boolean | readonly string[] };

/** The part of deno.json that affects a start. */
export interface Manifest {
  readonly unstable?: readonly string[];
  readonly permissions: Readonly<Record<string, Readonly<Record<string, PermissionScope>>>>;
}

/** Settings of {@linkcode launchConfig}. */
export interface LaunchOptions {
  /** True if the modules are separate files. The driver needs read permission for that of its worker. */
  readonly moduleIsFile: boolean;
}

/**
 * Returns the configuration for starting the driver, as JSON: its permission set, that of the plugin, and the unstable features of deno.json, and
 * nothing from the folders around it.
 *
 * @throws {Error} when deno.json has no such set
 */
export function launchConfig({ moduleIsFile }: LaunchOptions, from: Manifest = manifest): string {
  const { [PERMISSION_SET]: set, [PLUGIN_PERMISSION_SET]: pluginSet } = from.permissions;
  if (set === undefined) {
    throw new Error(`make the launch configuration: deno.json has no permissions.${PERMISSION_SET}`);
  }
  const config = {
    lock: false,
    nodeModulesDir: "none",
    workspace: [], // a root: Deno does not look for one in the folders above
    unstable: from.unstable ?? [],
    permissions: {
      [PERMISSION_SET]: moduleIsFile ? { ...set, read: withWorker(set.read) } : set,
      ...(pluginSet === undefined ? {} : { [PLUGIN_PERMISSION_SET]: pluginSet }),
    },
  };
  return JSON.stringify(config);
}

/** Adds the worker's module to a scope for reading. Deno resolves relative paths from the folder of the configuration. */
function withWorker(scope: PermissionScope = false): PermissionScope {
  if (scope === true) return true;
  if (scope === false) return [`./${WORKER_MODULE}`];
  if ("length" in scope) return [...scope, `./${WORKER_MODULE}`];
  return { ...scope, allow: withWorker(scope.allow) as boolean | readonly string[] };
}
