import { assert, assertEquals } from "@std/assert";
import manifest from "../deno.json" with { type: "json" };
import { IN_CLUSTER_ENVIRONMENT } from "../k8s/client/config.ts";
import { PROGRAM_DIRECTORIES, PROGRAMS } from "../lvm/exec.ts";
import { permissionsFor, PROGRAM_PATHS } from "./permissions.ts";

const permissionSet = manifest.permissions.denolith;

Deno.test("permissionsFor() permits sockets with their directories, directories, the listed programs, and no more", () => {
  const scope = { sockets: ["/run/denolith/csi.sock"], directories: ["/mnt", "/var/lib/kubelet"] };
  assertEquals(permissionsFor(scope, "/opt/denolith/main.js"), {
    run: [...PROGRAM_PATHS],
    read: ["/run/denolith", "/mnt", "/var/lib/kubelet", "/opt/denolith/main.js"],
    write: ["/run/denolith", "/mnt", "/var/lib/kubelet"],
    net: ["unix:/run/denolith/csi.sock", "unix:/run/denolith/.csi.new", "driver.invalid:80"],
    env: ["GRPC_*"],
    sys: false,
    ffi: false,
    import: false,
  });
});

Deno.test("permissionsFor() without paths and addresses returns the programs, the variables and the worker's own file", () => {
  const { read, write, net } = permissionsFor({ sockets: [], directories: [] }, "/opt/denolith/main.js");
  assertEquals({ read, write, net }, { read: ["/opt/denolith/main.js"], write: [], net: [] });
});

Deno.test("programs are permitted by absolute path, each in every directory where it may be", () => {
  assertEquals(PROGRAM_PATHS.length, PROGRAMS.length * PROGRAM_DIRECTORIES.length);
  assert(PROGRAM_PATHS.includes("/usr/sbin/lvm") && PROGRAM_PATHS.includes("/bin/mount"));
  assert(PROGRAM_PATHS.every((path) => /^(?:\/[a-z_2.]+)+$/.test(path)), PROGRAM_PATHS.join(" "));
});

Deno.test("the permission set has the listed programs and variables, and only what a subcommand can be given", () => {
  assertEquals(permissionSet, {
    // A user chooses sockets and directories: these are narrowed when the choice is known, and then dropped.
    read: true,
    write: true,
    net: true,
    run: [...PROGRAM_PATHS],
    env: ["CSI_ENDPOINT", "GRPC_*", ...IN_CLUSTER_ENVIRONMENT],
    sys: ["hostname"],
    ffi: false,
    import: false,
  });
});

Deno.test("the driver starts with the written permission set, and never requests more", () => {
  const { command } = manifest.tasks.standalone;
  assert(/ -P=denolith .* main\.ts /.test(command) && command.includes(" --no-prompt "), command);
  assert(!/ (?:-A|--allow)/.test(command), command);
});
