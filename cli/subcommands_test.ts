import { assertEquals } from "@std/assert";
import { flagsOf, SubcommandFolder } from "../tests/fake/subcommand.ts";
import { SUBCOMMANDS } from "./subcommands.ts";
import { WORKING_SUBCOMMANDS } from "./worker.ts";

/** Returns the sockets and directories that a command line needs. */
async function accessOf(...args: string[]) {
  const { sockets, directories } = await SUBCOMMANDS[args[0]!]!.access!(flagsOf(...args));
  return { sockets, directories };
}

Deno.test("standalone may access its socket, its mount roots by their real paths, and the cgroups that it is given", async () => {
  await using folder = await SubcommandFolder.create("http://127.0.0.1:1");
  await Deno.mkdir(`${folder.path}/real`);
  await Deno.symlink(`${folder.path}/real`, `${folder.path}/link`);
  const own = ["--endpoint", "/run/d/csi.sock", "--mount-roots", `${folder.path}/link,/nowhere`];
  const [roots, sockets] = [[`${folder.path}/link`, `${folder.path}/real`, "/nowhere"], ["/run/d/csi.sock"]];
  const sorted = async (...more: string[]) => {
    const { directories, sockets } = await accessOf("standalone", ...own, ...more);
    return { directories: [...directories].sort(), sockets };
  };
  assertEquals(await sorted(), { directories: roots.toSorted(), sockets });
  assertEquals(await sorted("--cgroup-root", "/cg"), { directories: [...roots, "/cg"].sort(), sockets });
});

Deno.test("node may access its sockets and the directory of kubelet; the socket of the registration only to register", async () => {
  await using folder = await SubcommandFolder.create("http://127.0.0.1:1");
  const own = ["--kubelet-dir", folder.path, "--kubeconfig", folder.kubeconfig];
  const socket = `${folder.path}/plugins/lvm.denolith.dev/csi.sock`;
  const registration = `${folder.path}/plugins_registry/lvm.denolith.dev-reg.sock`;
  assertEquals(await accessOf("node", ...own), { sockets: [socket, registration], directories: [folder.path] });
  const cgroups = ["--disable-registration", "--cgroup-root", "/cg"];
  assertEquals(await accessOf("node", ...own, ...cgroups), { sockets: [socket], directories: [folder.path, "/cg"] });
});

Deno.test("the other subcommands may access no directories, and no sockets but their own", async () => {
  await using folder = await SubcommandFolder.create("http://127.0.0.1:1");
  const cluster = ["--kubeconfig", folder.kubeconfig];
  const endpoint = ["--endpoint", "/run/d/csi.sock"];
  const sockets = ["/run/d/csi.sock"];
  assertEquals(await accessOf("controller", ...cluster, ...endpoint), { sockets, directories: [] });
  assertEquals(await accessOf("doctor", ...endpoint), { sockets, directories: [] });
  assertEquals(await accessOf("status"), { sockets: [], directories: [] });
  assertEquals(await accessOf("status", "--node-name", "n1", ...cluster), { sockets: [], directories: [] });
  assertEquals(SUBCOMMANDS["version"]!.access, undefined);
});

Deno.test("the worker has a body for each subcommand that accesses anything, and for no other", () => {
  const working = Object.entries(SUBCOMMANDS).filter(([, { access }]) => access !== undefined);
  assertEquals(WORKING_SUBCOMMANDS, working.map(([name]) => name));
});
