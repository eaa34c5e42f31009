/**
 * Tries, from inside a worker with the permissions of a subcommand's body, what it should and should not be able to do,
 * and prints how each ended as JSON. Started as a process under the written set, with the socket, the mount root, another
 * socket and a TCP port that somebody listens on; for a process of the cluster also with a kubeconfig, the port of the API
 * server in it, and the port to answer HTTP on.
 *
 * @module
 */

import { clusterAccess } from "../../cli/api_access.ts";
import { isSandboxed, runSandboxed, serveWorker } from "../../cli/sandbox.ts";
import { permissionsFor } from "../../cli/permissions.ts";
import { HostExec } from "../../lvm/exec.ts";
import { openExec } from "../../lvm/host/open_exec.ts";

type Attempt = () => unknown;

function permitted(socket: string, root: string): Record<string, Attempt> {
  return {
    "a listed program": () => new Deno.Command("/usr/bin/df", { clearEnv: true, env: { LC_ALL: "C" } }).output(),
    "a file in the mount root": () => Deno.writeTextFile(`${root}/file`, "x"),
    "the socket": () => Deno.listen({ transport: "unix", path: socket }).close(),
  };
}

function refused(root: string, otherSocket: string, port: number): Record<string, Attempt> {
  return {
    "a program off the list": () => new Deno.Command("/usr/bin/id").output(),
    "a shell": () => new Deno.Command("/bin/sh", { args: ["-c", "true"] }).output(),
    "a listed program's name elsewhere": () => new Deno.Command(`${root}/lvm`).output(),
    "a library put before a listed program": () =>
      new Deno.Command("/usr/bin/df", { env: { LD_PRELOAD: "x" } }).output(),
    "reading a file outside": () => Deno.readTextFile("/etc/passwd"),
    "the mount table in /proc": () => Deno.readTextFile("/proc/self/mountinfo"),
    "the mount table of this process in /proc": () => Deno.readTextFile(`/proc/${Deno.pid}/mountinfo`),
    "an environment": () => Deno.readTextFile("/proc/self/environ"),
    "the environment of process 1": () => Deno.readTextFile("/proc/1/environ"),
    "the status of this process": () => Deno.readTextFile(`/proc/${Deno.pid}/status`),
    "the list of processes": () => Deno.readDirSync("/proc").next(),
    "an environment by a link": () => Deno.readTextFile(`${root}/environ`),
    "reading the root directory": () => Deno.readDirSync("/").next(),
    "reading a directory whose name begins alike": () => Deno.readDirSync(`${root}-other`).next(),
    "writing a file outside": () => Deno.writeTextFile(`${root}-other/file`, "x"),
    "making a directory outside": () => Deno.mkdir(`${root}-other/directory`),
    "changing the program itself": async () => (await Deno.open(import.meta.filename!, { append: true })).close(),
    "a TCP address": () => Deno.connect({ hostname: "127.0.0.1", port }),
    "listening on a TCP port": () => Deno.listen({ hostname: "127.0.0.1", port: 0 }),
    "another socket": () => Deno.connect({ transport: "unix", path: otherSocket }),
    "a name": () => Deno.resolveDns("localhost", "A"),
    "a variable of others": () => Deno.env.get("HOME"),
    "the host's name": () => Deno.hostname(),
    "a foreign library": () => Deno.dlopen("/lib/libc.so.6", {}),
    "code from the network": () => import("https:" + `//127.0.0.1:${port}/module.js`),
    "a worker with all permissions": () =>
      new Worker(import.meta.url, { type: "module", deno: { permissions: { run: true } } }),
  };
}

function clusterPermitted({ kubeconfig, api, http }: Record<string, string>): Record<string, Attempt> {
  return {
    "the API server": async () => (await Deno.connect({ hostname: "127.0.0.1", port: Number(api) })).close(),
    "its own address": () => Deno.listen({ hostname: "127.0.0.1", port: Number(http) }).close(),
    "its kubeconfig": () => Deno.readTextFile(kubeconfig!),
  };
}

function clusterRefused({ kubeconfig, api, http, port }: Record<string, string>): Record<string, Attempt> {
  return {
    "another port of the API server's host": () => Deno.connect({ hostname: "127.0.0.1", port: Number(port) }),
    "the API server's port of another host": () => Deno.connect({ hostname: "127.0.0.2", port: Number(api) }),
    "a request elsewhere": () => fetch(`https://127.0.0.1:${port}/`),
    "its port on all addresses": () => Deno.listen({ hostname: "0.0.0.0", port: Number(http) }),
    "listening elsewhere": () => Deno.listen({ hostname: "127.0.0.1", port: Number(port) }),
    "changing its kubeconfig": () => Deno.writeTextFile(kubeconfig!, ""),
    "what is beside its kubeconfig": () => Deno.readTextFile(`${kubeconfig}.other`),
    "where a pod's API server is": () => Deno.env.get("KUBERNETES_SERVICE_HOST"),
  };
}

async function outcomes(attempts: Record<string, Attempt>): Promise<Record<string, string>> {
  const entries = Object.entries(attempts).map(async ([name, attempt]) => {
    try {
      await attempt();
      return [name, "done"];
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      return [
        name,
        /^(?:Requires (?:\w+ access|--allow-run permissions)|Can't escalate) /.test(message) ? "refused" : message,
      ];
    }
  });
  return Object.fromEntries(await Promise.all(entries));
}

async function probe({ socket, root, otherSocket, port }: Record<string, string>): Promise<number> {
  console.log(JSON.stringify({
    permitted: await outcomes(permitted(socket!, root!)),
    refused: await outcomes(refused(root!, otherSocket!, Number(port))),
  }));
  return 0;
}

/** Prints the status of a command's process. */
async function probeSession(): Promise<number> {
  const exec = await openExec();
  const args = ["if=/proc/self/stat", "status=none"];
  console.log((await exec.run({ program: "dd", args, mutates: true })).stdout);
  return 0;
}

async function probeCluster(flags: Record<string, string>): Promise<number> {
  console.log(JSON.stringify({
    permitted: await outcomes(clusterPermitted(flags)),
    refused: await outcomes(clusterRefused(flags)),
  }));
  return 0;
}

if (isSandboxed()) {
  serveWorker(({ name, flags }) => {
    if (name === "probe") return probe(flags);
    if (name === "cluster") return probeCluster(flags);
    if (name === "session") return probeSession();
    const args = [`if=${flags.root}/fifo`, `of=${flags.root}/written`, "bs=1", "status=none"];
    void new HostExec({ ownSessions: false }).run({ program: "dd", args, mutates: true });
    if (name === "end") return Promise.resolve(0);
    setTimeout(() => {
      if (name === "throw") throw new Error("unforeseen");
      void Promise.reject(new Error("unforeseen"));
    });
    return new Promise(() => {});
  });
} else {
  const [name, socket, root, otherSocket, port, kubeconfig, api, http] = Deno.args as string[] & [
    string,
    string,
    string,
  ];
  const namedArgs = { socket, root, otherSocket, port, kubeconfig, api, http };
  const flags = Object.fromEntries(Object.entries(namedArgs).flatMap(([key, value]) => value ? [[key, value]] : []));
  const request = { name, flags };
  const access = kubeconfig === undefined
    ? {}
    : await clusterAccess({ kubeconfig, "http-address": `127.0.0.1:${http}` });
  const permissions = permissionsFor({ sockets: [socket], directories: [root], ...access }, import.meta.filename!);
  const { signal } = new AbortController();
  const status = await runSandboxed(request, { module: import.meta.url, permissions, end: signal }).catch((error) => {
    console.error(error.message);
    return 1;
  });
  console.log(JSON.stringify(
    await outcomes({
      "a listed program": () => new Deno.Command("/usr/bin/df").output(),
      "a file in the mount root": () => Deno.readTextFile(`${root}/file`),
      "a TCP address": () => Deno.connect({ hostname: "127.0.0.1", port: Number(port) }),
      "the host's name": () => Deno.hostname(),
    }),
  ));
  Deno.exit(status);
}
