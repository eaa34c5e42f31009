/**
 * One end of a measured transfer, as a process of its own: `transfer_end.ts source FILE PORT` or `destination FILE PORT MIB`.
 * Files take the place of devices. It gets what it needs to know of the other end on its standard input.
 *
 * @module
 */

import { HostExec } from "../../lvm/exec.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { FETCH_BYTES } from "../../lvm/copies/work.ts";
import { Bandwidth } from "../../lvm/transfers/connection.ts";
import { receiveRange } from "../../lvm/transfers/receiver.ts";
import { serveTransfer } from "../../lvm/transfers/sender.ts";
import { makeCredentials } from "../../k8s/transfers/certificate.ts";
import { dial } from "../../k8s/transfers/dial.ts";
import { listen } from "../../k8s/transfers/listener.ts";

const HOST = "127.0.0.1";
const [role, path, port] = Deno.args as [string, string, string];
const size = BigInt((await Deno.stat(path)).size);
const exec = new HostExec();
const bandwidth = new Bandwidth();
const credentials = await makeCredentials(role, new Date());

if (role === "source") {
  await listen({
    ...{ address: { host: HOST, port: Number(port) }, credentials },
    onConnection: (connection) =>
      void serveTransfer(connection, { exec, bandwidth, open: () => Promise.resolve({ path, size }) })
        .catch((error) => console.error((error as Error).message)),
  });
  console.log(JSON.stringify(credentials.certificate));
} else {
  console.log("ready");
  const certificate = JSON.parse(await new Response(Deno.stdin.readable).text());
  const ids = { driver: "d", node: "destination", snapshot: snapshotIdOf("s"), volume: volumeIdOf("v") };
  const destination = { path, size, skipsZeros: false };
  for (let offset = 0n; offset < size;) {
    const connection = await dial({ node: "source", host: HOST, port: Number(port), certificate }, { credentials });
    const request = { ...ids, offset, length: FETCH_BYTES };
    offset = (await receiveRange(connection, request, { exec, bandwidth, destination })).end;
  }
}
