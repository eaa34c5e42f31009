/**
 * Transfers between real LVs, by real TLS: `deno test` runs this in the guest, as one bundle. Both agents are this process; what
 * is sent is a snapshot, as between two nodes.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { HostExec } from "../../lvm/exec.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Bandwidth, type Connection } from "../../lvm/transfers/connection.ts";
import { RANGE_UNIT } from "../../lvm/transfers/protocol.ts";
import { receiveRange } from "../../lvm/transfers/receiver.ts";
import { serveTransfer } from "../../lvm/transfers/sender.ts";
import { makeCredentials } from "../../k8s/transfers/certificate.ts";
import { dial } from "../../k8s/transfers/dial.ts";
import { listen } from "../../k8s/transfers/listener.ts";
import { run } from "../demo/command.ts";
import { runRandom } from "../rig/seeded_random.ts";

const [disk, ...others] = (Deno.env.get("DATA_DISKS") ?? "").split(" ");
if (disk === undefined || others.length > 0) throw new Error("DATA_DISKS: must name one empty disk");

const GROUP = "transfers";
const MiB = 1 << 20;
/** The size of the source, in MiB: of no whole units. */
const SIZE = 204;

const IPV4 = { host: "127.0.0.1", remoteHost: "127.0.0.1" };

const exec = new HostExec();
await run("load modules", "modprobe", ["-a", "dm-thin-pool", "dm-snapshot"]);
await run("make a group", "vgcreate", ["-qq", "--yes", GROUP, disk]);

/** Makes an LV. @returns the path of its device */
async function makeLv(name: string, ...options: string[]): Promise<string> {
  await run(`make ${name}`, "lvcreate", ["-qq", "--yes", "--name", name, ...options]);
  await run("wait for udev", "udevadm", ["settle"]);
  return `/dev/${GROUP}/${name}`;
}

/** Writes bytes that are not compressible at some places of a device, in MiB. */
async function fill(path: string, places: readonly (readonly [at: number, count: number])[]): Promise<void> {
  for (const [at, count] of places) {
    await run("write", "dd", [
      ...["if=/dev/urandom", `of=${path}`, "bs=1M", `seek=${at}`, `count=${count}`],
      ...["oflag=direct", "conv=notrunc,fsync", "status=none"],
    ]);
  }
}

/** Listens with the device of a snapshot. @param hosts the address to listen on, and how it is reached */
async function serve(
  path: string,
  wrap: (connection: Connection) => Connection = (connection) => connection,
  { host, remoteHost }: { readonly host: string; readonly remoteHost: string } = IPV4,
) {
  const [source, destination] = await Promise.all(["a", "b"].map((name) => makeCredentials(name, new Date())));
  let sent = 0;
  const listener = await listen({
    ...{ address: { host, port: 0 }, credentials: source! },
    onConnection: (connection) =>
      void serveTransfer(wrap(connection), {
        ...{ exec, bandwidth: new Bandwidth() },
        open: () => Promise.resolve({ path, size: BigInt(SIZE * MiB) }),
        onSent: (bytes) => sent += bytes,
      }).catch(() => {}),
  });
  const remote = { node: "a", host: remoteHost, port: listener.port, certificate: source!.certificate };
  return {
    dial: () => dial(remote, { credentials: destination! }),
    sent: () => sent,
    [Symbol.asyncDispose]: () => listener.close(),
  };
}

/** Fetches ranges until the snapshot is complete. @returns how many attempts failed */
async function fetchAll(
  source: Awaited<ReturnType<typeof serve>>,
  path: string,
  skipsZeros: boolean,
): Promise<number> {
  let [offset, failures] = [0n, 0];
  const ids = { driver: "d", node: "b", snapshot: snapshotIdOf("s"), volume: volumeIdOf("v") };
  const destination = { path, size: BigInt(SIZE * MiB), skipsZeros };
  for (;;) {
    try {
      const range = { offset, length: 16n * RANGE_UNIT };
      const options = { exec, bandwidth: new Bandwidth(), destination };
      const { end, size } = await receiveRange(await source.dial(), { ...ids, ...range }, options);
      offset = end;
      if (end === size) return failures;
    } catch (error) {
      if (++failures > 40) throw error;
    }
  }
}

async function assertSame(a: string, b: string): Promise<void> {
  await run("compare", "cmp", [`--bytes=${SIZE * MiB}`, a, b]);
}

const origin = await makeLv("origin", "--size", `${SIZE}m`, GROUP);
await run("erase", "blkdiscard", ["--zeroout", origin]);
await fill(origin, [[0, 3], [50, 20], [130, 1], [203, 1]]);
const snapshot = await makeLv("snap", "--snapshot", "--permission", "r", "--size", `${SIZE + 12}m`, `${GROUP}/origin`);
const before = await makeLv("before", "--size", `${SIZE}m`, GROUP);
await run("copy", "dd", [`if=${origin}`, `of=${before}`, "bs=4M", "oflag=direct", "status=none"]);
await fill(origin, [[10, 5], [60, 5]]); // what the snapshot does not have

Deno.test("a thick volume has what the snapshot has, over what was there; zeros were not sent", async () => {
  await using source = await serve(snapshot);
  const path = await makeLv("thick", "--size", `${SIZE}m`, GROUP);
  await fill(path, [[0, SIZE]]);
  const begin = performance.now();
  assertEquals(await fetchAll(source, path, false), 0);
  console.log(`${SIZE} MiB in ${Math.round(performance.now() - begin)} ms, ${source.sent() / MiB} MiB of them sent`);
  await assertSame(before, path);
  assert(source.sent() >= 25 * MiB && source.sent() < 27 * MiB, `${source.sent()} bytes`);
  await run("remove", "lvremove", ["-qq", "--yes", `${GROUP}/thick`]);
});

Deno.test("an agent with an IPv6 address alone is reached by the name of its pod", async () => {
  const [address, name] = ["fd00:10:244::a7", "fd00-10-244--a7.denolith-system.pod"];
  await run("bring loopback up", "ip", ["link", "set", "lo", "up"]);
  await run("add an address", "ip", ["-6", "address", "add", `${address}/128`, "dev", "lo", "nodad"]);
  // as the DNS of a cluster answers
  await Deno.writeTextFile("/etc/hosts", `${address} ${name}\n`, { append: true });
  await using source = await serve(snapshot, undefined, { host: "::", remoteHost: name });
  const path = await makeLv("ipv6", "--size", `${SIZE}m`, GROUP);
  assertEquals(await fetchAll(source, path, false), 0);
  await assertSame(before, path);
  await run("remove", "lvremove", ["-qq", "--yes", `${GROUP}/ipv6`]);
});

Deno.test("a thin volume has what the snapshot has, and takes no space for zeros", async () => {
  await using source = await serve(snapshot);
  await run("make a pool", "lvcreate", [
    "-qq",
    "--yes",
    "--type",
    "thin-pool",
    "--size",
    "256m",
    "--name",
    "pool",
    GROUP,
  ]);
  const path = await makeLv("thin", "--thin", "--virtualsize", `${SIZE}m`, `${GROUP}/pool`);
  assertEquals(await fetchAll(source, path, true), 0);
  await assertSame(before, path);
  const percent = Number(await run("report", "lvs", ["--noheadings", "-o", "data_percent", `${GROUP}/thin`]));
  assert(percent > 10 && percent < 25, `${percent} %`);
  await run("remove", "lvremove", ["-qq", "--yes", `${GROUP}/pool`]);
});

/** How often the connection of each range breaks. */
const BREAKS = 5;

Deno.test("connections that break at random bytes, by either end, again and again cost only the ranges that they were for", async () => {
  const random = runRandom();
  let count = 0;
  /** Lets a connection break after so many bytes, but for each sixth. */
  const breaking = (connection: Connection, isReader: boolean): Connection => {
    if (count % (BREAKS + 1) === 0 || (count % 2 === 0) !== isReader) return connection;
    let left = random() * 2 * MiB;
    const pass = (bytes: number) => {
      left -= bytes;
      if (left > 0) return;
      connection.close();
      throw new Error("broken on purpose");
    };
    return {
      ...connection,
      write: async (bytes) => {
        if (!isReader) pass(bytes.length);
        await connection.write(bytes);
      },
      read: async (buffer) => {
        const bytes = await connection.read(buffer);
        if (isReader) pass(bytes ?? 0);
        return bytes;
      },
    };
  };
  await using source = await serve(snapshot, (connection) => breaking(connection, false));
  const dial = async () => {
    count++;
    return breaking(await source.dial(), true);
  };
  const path = await makeLv("broken", "--size", `${SIZE}m`, GROUP);
  await fill(path, [[0, SIZE]]);
  const failures = await fetchAll({ ...source, dial }, path, false);
  assert(failures >= BREAKS, `${failures} failures: a range of zeros alone may pass before`);
  await assertSame(before, path);
  await run("remove", "lvremove", ["-qq", "--yes", `${GROUP}/broken`]);
});

Deno.test("a snapshot that overflows fails to be read, and nothing wrong is taken for complete", async () => {
  const small = await makeLv("small", "--snapshot", "--permission", "r", "--size", "8m", `${GROUP}/origin`);
  await fill(origin, [[0, 40]]);
  await using source = await serve(small);
  const path = await makeLv("lost", "--size", `${SIZE}m`, GROUP);
  await assertRejects(() => fetchAll(source, path, false), Error, "Input/output error");
  await run("remove", "lvremove", ["-qq", "--yes", `${GROUP}/lost`, `${GROUP}/small`]);
});
