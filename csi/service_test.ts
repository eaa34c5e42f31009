import { create, type DescField, type DescMessage, getOption } from "@bufbuild/protobuf";
import { configure, type LogRecord, reset } from "@logtape/logtape";
import { assert, assertEquals } from "@std/assert";
import { fakeHost } from "../tests/contract/helpers/fake_host.ts";
import { Harness, volumeRequest } from "../tests/contract/helpers/host.ts";
import {
  Controller,
  CreateVolumeRequestSchema,
  csi_secret,
  file_csi,
  GetCapacityRequestSchema,
  GroupController,
  Identity,
  Node,
  SnapshotMetadata,
} from "./proto/csi_pb.ts";
import { loggedCall, streamingMethods, unaryMethods, withoutSecrets } from "./service.ts";
import proto from "./proto/csi.proto" with { type: "text" };

function secretFields(message: DescMessage): DescField[] {
  return message.fields.filter((field) => getOption(field, csi_secret));
}

Deno.test("every secret of the protocol is a map at the top of a request, where withoutSecrets() looks", () => {
  const marked = proto.match(/csi_secret\) = true/g)!.length;
  assertEquals(file_csi.messages.flatMap(secretFields).length, marked);
  const inputs = new Set(
    [Identity, Controller, GroupController, Node, SnapshotMetadata].flatMap((service) => [
      ...unaryMethods(service),
      ...streamingMethods(service),
    ]).map((method) => method.input.typeName),
  );
  for (const message of file_csi.messages.filter((message) => secretFields(message).length > 0)) {
    assert(inputs.has(message.typeName), message.typeName);
    for (const field of secretFields(message)) assertEquals(field.fieldKind, "map", field.name);
  }
});

Deno.test("withoutSecrets() leaves the names of secrets and nothing of their values", () => {
  const request = create(CreateVolumeRequestSchema, {
    name: "n",
    secrets: { password: "hunter2" },
    parameters: { a: "b" },
  });
  assertEquals(withoutSecrets(CreateVolumeRequestSchema, request), {
    name: "n",
    parameters: { a: "b" },
    secrets: { password: "(not logged)" },
  });
  assertEquals(request.secrets, { password: "hunter2" });
});

Deno.test("loggedCall() reads the request only when it logs it", async () => {
  const { getCapacity } = Controller.method;
  const readsAt = async (lowestLevel: "debug" | "info") => {
    let reads = 0;
    const request = new Proxy(create(GetCapacityRequestSchema, { parameters: { a: "b" } }), {
      get: (target, key) => {
        if (key === "parameters") reads++;
        return Reflect.get(target, key);
      },
    });
    await configure({
      sinks: { none: () => {} },
      loggers: [
        { category: "denolith", sinks: ["none"], lowestLevel },
        { category: ["logtape", "meta"], lowestLevel: "error" },
      ],
    });
    try {
      assertEquals(await loggedCall(getCapacity, request, () => Promise.resolve("answer")), "answer");
    } finally {
      await reset();
    }
    return reads;
  };
  assertEquals(await readsAt("info"), 0);
  assert(await readsAt("debug") > 0);
});

Deno.test("every request is logged with an id, and no secret reaches a log line, an error or a command", async () => {
  const records: LogRecord[] = [];
  await configure({
    reset: true,
    sinks: { memory: (record) => void records.push(record) },
    loggers: [
      { category: ["denolith"], sinks: ["memory"], lowestLevel: "debug" },
      { category: ["logtape", "meta"], sinks: [], lowestLevel: "error" },
    ],
  });
  const machine = await fakeHost.setUp();
  await using bench = await Harness.start(machine.exec, fakeHost.groups);
  const secrets = { passphrase: "correct-horse-battery-staple" };
  const { volume } = await bench.csi.controller.createVolume({ ...volumeRequest(), secrets });
  const failed = await bench.csi.controller.createVolume({ ...volumeRequest(), parameters: { nonsense: "1" }, secrets })
    .catch(String);
  const volumeId = volume!.volumeId;
  await bench.csi.controller.deleteVolume({ volumeId, secrets });
  await reset();

  const output = JSON.stringify([records, failed, bench.exec.commands]);
  assert(!output.includes("correct-horse"), "a secret was logged");
  for (const method of ["CreateVolume", "DeleteVolume"]) {
    const ids = records.filter(({ properties }) => properties.method === method).map(({ properties }) =>
      properties.requestId
    );
    assert(ids.length >= 2 && ids.every((id) => /^[0-9a-f]{8}$/.test(`${id}`)), `${method} is not logged with an id`);
  }
  const linesOf = (level: string, method: string) =>
    records.filter((record) => record.level === level && record.properties.method === method);
  assertEquals(linesOf("info", "CreateVolume").length, 1, "one line for an operation");
  assertEquals((linesOf("info", "DeleteVolume")[0]!.properties.request as { volumeId: string }).volumeId, volumeId);
  assert(records.some(({ rawMessage, properties }) => rawMessage === "error" && properties.code === 3));
});

Deno.test("the generated code has the messages, fields and numbers of csi.proto", () => {
  const plain = proto.replace(/\/\/.*$/gm, "");
  const services = [...plain.matchAll(/^service (\w+)/gm)].map(([, name]) => name);
  assertEquals(file_csi.services.map(({ name }) => name), services);
  const methods = [...plain.matchAll(/\brpc (\w+)\s*\(/g)].map(([, name]) => name);
  assertEquals(file_csi.services.flatMap((service) => service.methods.map(({ name }) => name)), methods);
  const messages = [...plain.matchAll(/^message (\w+)/gm)].map(([, name]) => name);
  assertEquals(file_csi.messages.map(({ name }) => name), messages);
  const numbers = (message: DescMessage): number[] => [
    ...message.fields.map(({ number }) => number),
    ...message.nestedMessages.flatMap(numbers),
  ];
  for (const message of file_csi.messages) {
    const start = plain.search(new RegExp(`^message ${message.name} \\{`, "m"));
    const empty = new RegExp(`^message ${message.name} \\{\\s*\\}`, "m").test(plain);
    const body = empty
      ? ""
      : plain.slice(start, start + plain.slice(start).search(/^\}/m)).replace(/\benum \w+ \{[^}]*\}/g, "");
    const declared = [...body.matchAll(/^\s+(?:repeated )?[\w.<>, ]+\s+\w+\s*=\s*(\d+)\b/gm)].map(([, number]) =>
      Number(number)
    );
    assertEquals(numbers(message).sort(), declared.sort(), message.name);
  }
});
