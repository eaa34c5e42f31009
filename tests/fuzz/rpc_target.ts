/**
 * Target: the calls of the driver, through its socket, over the fake machine.
 *
 * @module
 */

import { fromBinary } from "@bufbuild/protobuf";
import { type Client, type ServiceError, status } from "@grpc/grpc-js";
import { assert } from "@std/assert";
import { Buffer } from "node:buffer";
import { describeCommand } from "../../lvm/exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { fakeHost } from "../contract/helpers/fake_host.ts";
import { grpcClient } from "../contract/helpers/grpc_client.ts";
import { blockCapability, Harness } from "../contract/helpers/host.ts";
import { encode, EXISTING, METHODS, type Request, requests } from "./messages.ts";
import { asTarget, type Target } from "./target.ts";

/** The codes of every call (CSI spec, "Error Scheme"), without those of failures of the driver or the machine. */
const COMMON_CODES = ["OK", "INVALID_ARGUMENT", "ABORTED"];

const UNIMPLEMENTED_CALLS = ["ControllerPublishVolume", "ControllerUnpublishVolume"];

/** The further codes of calls (CSI spec, the error tables). */
const CODES: Readonly<Record<string, readonly string[]>> = {
  CreateVolume: ["NOT_FOUND", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE"],
  DeleteVolume: ["FAILED_PRECONDITION"],
  ControllerExpandVolume: ["NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE"],
  ControllerModifyVolume: ["NOT_FOUND"],
  ControllerGetVolume: ["NOT_FOUND"],
  ControllerGetVolumeHealth: ["NOT_FOUND"],
  ValidateVolumeCapabilities: ["NOT_FOUND"],
  CreateSnapshot: ["NOT_FOUND", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"],
  DeleteSnapshot: ["FAILED_PRECONDITION"],
  GetSnapshot: ["NOT_FOUND"],
  NodeStageVolume: ["NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION"],
  NodeUnstageVolume: ["NOT_FOUND", "FAILED_PRECONDITION"],
  NodePublishVolume: ["NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION"],
  NodeUnpublishVolume: ["NOT_FOUND", "FAILED_PRECONDITION"],
  NodeGetVolumeStats: ["NOT_FOUND"],
  NodeGetVolumeHealth: ["NOT_FOUND"],
  NodeExpandVolume: ["NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE"],
};

/** Characters of arguments that are the driver's own, or that a parser has let through. */
const SAFE_ARGUMENT = /^[A-Za-z0-9 _+./=!:&#,%"^|@-]*$/;

/** Milliseconds in which a call must be answered, on a loaded machine. */
const ANSWER_MS = 50_000;

/** The longest argument: a list of report fields, or a path. */
const MAX_ARGUMENT_LENGTH = 4_200;

function call(client: Client, path: string, bytes: Uint8Array): Promise<{ code: string; details: string }> {
  return new Promise((resolve) => {
    const respond = (error: ServiceError | null) =>
      resolve(error === null ? { code: "OK", details: "" } : { code: status[error.code]!, details: error.details });
    const same = (value: Buffer) => value;
    client.makeUnaryRequest(path, same, same, Buffer.from(bytes), { deadline: Date.now() + ANSWER_MS }, respond);
  });
}

/** Reports whether a size can be in the range of a request, if it has one. */
function hasPossibleRange(request: unknown): boolean {
  const { requiredBytes = 0n, limitBytes = 0n } = (request as { capacityRange?: Record<string, bigint> })
    .capacityRange ?? {};
  return requiredBytes >= 0n && limitBytes >= 0n && (limitBytes === 0n || requiredBytes <= limitBytes);
}

/** Checks the code of a call. */
function checkCode(method: string, bytes: Uint8Array, { code, details }: { code: string; details: string }): void {
  const { input } = METHODS.get(method)!;
  let request: unknown;
  try {
    request = fromBinary(input, bytes);
  } catch {
    assert(code !== "OK", `${method}: a message that cannot be decoded succeeded`);
    return;
  }
  assert(code !== "OK" || hasPossibleRange(request), `${method}: an impossible capacity_range succeeded`);
  const allowed = UNIMPLEMENTED_CALLS.includes(method) ? ["UNIMPLEMENTED"] : [...COMMON_CODES, ...CODES[method] ?? []];
  assert(allowed.includes(code), `${method}: ${code}: ${details}`);
  assert(code === "OK" || details !== "", `${method}: ${code} without a message`);
}

/** Checks that commands have only texts that the driver made or checked. */
function checkCommands({ exec: { commands }, folder }: Harness): void {
  for (const command of commands) {
    for (const arg of command.args) {
      const text = arg.replace(/^[io]f=/, "");
      const isPath = text.startsWith(`${folder}/`) && !/[\0\n]|\/\.\.?(?:\/|$)/.test(text);
      assert((isPath || SAFE_ARGUMENT.test(text)) && text.length <= MAX_ARGUMENT_LENGTH, describeCommand(command));
    }
  }
}

/** Starts a driver with a volume of each kind and a snapshot. */
async function startDriver(): Promise<Harness> {
  const { exec } = await fakeHost.setUp();
  const harness = await Harness.start(exec, fakeHost.groups);
  await harness.create({ name: EXISTING.mounted });
  await harness.create({ name: EXISTING.block, volumeCapabilities: [blockCapability()] });
  const sourceVolumeId = volumeIdOf(EXISTING.mounted);
  await harness.csi.controller.createSnapshot({ name: EXISTING.snapshot, sourceVolumeId });
  return harness;
}

async function checkRequests(list: readonly Request[]): Promise<void> {
  const failures: unknown[] = [];
  const listener = (event: PromiseRejectionEvent) => {
    event.preventDefault();
    failures.push(event.reason);
  };
  globalThis.addEventListener("unhandledrejection", listener);
  try {
    await using harness = await startDriver();
    for (const name of ["staging", "other"]) await Deno.mkdir(`${harness.folder}/${name}`); // as an orchestrator does
    using connection = grpcClient(`${harness.folder}/csi.sock`);
    for (const request of list) {
      const bytes = encode(request, harness.folder);
      const { parent, name } = METHODS.get(request.method)!;
      checkCode(name, bytes, await call(connection.client, `/${parent.typeName}/${name}`, bytes));
    }
    checkCommands(harness);
    await harness.csi.identity.getPluginInfo();
  } finally {
    globalThis.removeEventListener("unhandledrejection", listener);
  }
  if (failures.length > 0) throw new Error("an error ended no call", { cause: failures[0] });
}

/** The target. */
export const RPC_TARGET: Target = asTarget<readonly Request[]>({
  name: "calls",
  description: "requests of all calls, also ones that cannot be decoded, through the socket",
  inputs: requests,
  testRuns: 4,
  open: () => Promise.resolve({ check: checkRequests, [Symbol.asyncDispose]: () => Promise.resolve() }),
});
