/**
 * A node plugin that does for kubelet what those of OpenEBS LVM LocalPV and TopoLVM do: it mounts the LV whose name is the handle of
 * the volume, and unmounts it. Its arguments are the name of the driver, the volume group, the name of the node, and the label of a
 * node that is its topology.
 *
 * @module
 */

import { Identity, Node, PluginCapability_Service_Type } from "../../../csi/proto/csi_pb.ts";
import { serveRegistration } from "../../../csi/registration.ts";
import { serve } from "../../../csi/server.ts";
import { bindService, type Handlers } from "../../../csi/service.ts";

const [driver = "", group = "", nodeId = "", topologyKey = ""] = Deno.args;
const KUBELET = "/var/lib/kubelet";
const socket = `${KUBELET}/plugins/${driver}/csi.sock`;

/** Runs a program. @throws {Error} when it fails */
async function run(program: string, ...args: string[]): Promise<void> {
  const { success, stderr } = await new Deno.Command(program, { args }).output();
  if (!success) throw new Error(`${program} ${args.join(" ")}: ${new TextDecoder().decode(stderr)}`);
}

/** Reports whether something is mounted at a path. */
async function isMounted(path: string): Promise<boolean> {
  return (await Deno.readTextFile("/proc/self/mountinfo")).includes(` ${path} `);
}

/** The capability without which kubelet sets no label. */
const TOPOLOGY = {
  type: {
    case: "service",
    value: { type: PluginCapability_Service_Type.VOLUME_ACCESSIBILITY_CONSTRAINTS },
  },
} as const;

const identity: Partial<Handlers<typeof Identity>> = {
  getPluginInfo: () => Promise.resolve({ name: driver, vendorVersion: "1.0.0" }),
  getPluginCapabilities: () => Promise.resolve({ capabilities: [TOPOLOGY] }),
  probe: () => Promise.resolve({}),
};

const node: Partial<Handlers<typeof Node>> = {
  nodeGetInfo: () => Promise.resolve({ nodeId, accessibleTopology: { segments: { [topologyKey]: nodeId } } }),
  nodeGetCapabilities: () => Promise.resolve({}),
  nodePublishVolume: async ({ volumeId, targetPath }) => {
    await Deno.mkdir(targetPath, { recursive: true });
    const device = `/dev/mapper/${group}-${volumeId.replaceAll("-", "--")}`;
    if (!await isMounted(targetPath)) await run("/usr/bin/mount", "-t", "ext4", device, targetPath);
    return {};
  },
  nodeUnpublishVolume: async ({ targetPath }) => {
    if (await isMounted(targetPath)) await run("/usr/bin/umount", targetPath);
    await Deno.remove(targetPath).catch(() => {}); // a repeated call
    return {};
  },
};

await Deno.mkdir(`${KUBELET}/plugins/${driver}`, { recursive: true });
await serve(socket, [bindService(Identity, identity), bindService(Node, node)]);
await serveRegistration(`${KUBELET}/plugins_registry/${driver}-reg.sock`, { driver, endpoint: socket });
console.error(`${driver}: serving`);
