/**
 * The cost of encrypted volumes beside plain LUKS on a logical volume of the same size, in the same run: `deno test` runs this
 * in the guest, as one bundle. It prints what it measured, and leaves the figures in out/figures.json.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import type { Measured } from "../bench/figures.ts";
import { formatCommand, openCommand } from "../../lvm/encryption/cryptsetup.ts";
import { mappingPath } from "../../lvm/encryption/mapping.ts";
import type { VolumeId } from "../../base/ids.ts";
import { Passphrase } from "../../lvm/encryption/passphrase.ts";
import { runOk } from "../../lvm/exec.ts";
import { PARAMETERS, unpublish, unstage } from "../contract/helpers/encrypted_volumes.ts";
import { blockCapability, contractTest, type Harness } from "../contract/helpers/host.ts";
import { realHost } from "./helpers/real_host.ts";

/** How often each side is measured, in turn. */
const ROUNDS = 5;

/** The size of the volumes, and what is written and read each time, in MiB. */
const [SIZE_MIB, DATA_MIB] = [96, 64];

/** The bounds of a ratio of throughputs: the machine has other work, and both sides have the same device below. */
const [LEAST, MOST] = [0.5, 2];

const PASSPHRASE = "the passphrase of both sides";

/** The names of the plain logical volume, and of its mapping. */
const [PLAIN_LV, PLAIN_MAPPING] = ["plain", "plain-luks"];

contractTest(await realHost("cost"), "an encrypted volume costs what plain LUKS costs", async (harness) => {
  const [volumeGroup] = harness.groups;
  const secrets = { passphrase: PASSPHRASE };
  const capability = blockCapability();
  const volumeId = await harness.create({
    volumeCapabilities: [capability],
    parameters: { ...PARAMETERS, volumeGroup },
    capacityRange: { requiredBytes: BigInt(SIZE_MIB) << 20n },
  });
  const stage = () => harness.stage(volumeId, capability, { secrets });
  const plain = await makePlain(harness);

  const first = await harness.exec.recordCommands(stage);
  const publish = await harness.exec.recordCommands(() =>
    harness.publish(volumeId, "pod", { volumeCapability: capability, secrets })
  );
  await plain.open();
  const rates = new Map<string, number[]>();
  for (let round = 0; round < ROUNDS; round++) {
    for (
      const [side, device] of [["driver", mappingPath(volumeId as VolumeId)], ["plain", plain.mapping], [
        "LV",
        plain.bare,
      ]]
    ) {
      for (const kind of ["write", "read"] as const) {
        push(rates, `${side} ${kind}`, await throughput(harness, device!, kind));
      }
    }
  }
  await plain.close();
  await unpublish(harness, volumeId, "pod");
  await unstage(harness, volumeId);

  const times = new Map<string, number[]>();
  let again: string[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    push(times, "stage", await seconds(async () => void (again = await harness.exec.recordCommands(stage))));
    await unstage(harness, volumeId);
    push(times, "open", await seconds(plain.open));
    await plain.close();
  }
  await plain.remove();
  await harness.csi.controller.deleteVolume({ volumeId });

  const ratio = (kind: string, side: string) => median(rates, `driver ${kind}`) / median(rates, `${side} ${kind}`);
  for (const kind of ["write", "read"]) {
    const [driver, luks, bare] = ["driver", "plain", "LV"].map((side) => median(rates, `${side} ${kind}`).toFixed(0));
    console.log(
      `${kind}: ${driver} MiB/s, plain LUKS ${luks} MiB/s (ratio ${ratio(kind, "plain").toFixed(2)}), without ` +
        `encryption ${bare} MiB/s (ratio ${ratio(kind, "LV").toFixed(2)})`,
    );
    const found = ratio(kind, "plain");
    assert(found > LEAST && found < MOST, `${kind}: ${found} times the throughput of plain LUKS`);
  }
  const [staged, opened] = [median(times, "stage"), median(times, "open")];
  console.log(
    `stage: ${staged.toFixed(2)} s, cryptsetup open: ${opened.toFixed(2)} s (ratio ${(staged / opened).toFixed(2)})`,
  );
  const figures: Measured = {
    encryptedWrite: 1 / ratio("write", "plain"),
    encryptedRead: 1 / ratio("read", "plain"),
    encryptedOpen: staged / opened,
  };
  await Deno.writeTextFile("/work/out/figures.json", JSON.stringify(figures));
  const counts = { "first stage": first, "next stage": again, publish };
  for (const [call, commands] of Object.entries(counts)) console.log(`${call}: ${commands.length} commands`);
  // one key is derived, as by cryptsetup alone
  assertEquals(again.filter(derivesKey).length, 1, again.join("\n"));
  assertEquals(publish.filter(derivesKey), []);
});

function derivesKey(command: string): boolean {
  return /^cryptsetup .*--key-file -/.test(command);
}

/** Makes a logical volume with LUKS on it, and one without, as an administrator does. */
async function makePlain(harness: Harness) {
  const [group] = harness.groups;
  const passphrase = new Passphrase(PASSPHRASE);
  const names = [PLAIN_LV!, "bare"];
  const options = ["--yes", "--zero", "y", "--wipesignatures", "y", "--size", `${SIZE_MIB}m`];
  for (const name of names) await harness.runAsAdmin("lvm", "lvcreate", ...options, "--name", name, group!);
  const lvs = await harness.lvs();
  const [device, bare] = names.map((name) => lvs.find((lv) => lv.name === name)!.devicePath) as [string, string];
  await runOk(harness.exec, formatCommand({ device, uuid: crypto.randomUUID() }, passphrase));
  const target = { device, name: PLAIN_MAPPING!, discards: false };
  return {
    mapping: `/dev/mapper/${PLAIN_MAPPING}`,
    bare,
    open: async () => void await runOk(harness.exec, openCommand(target, passphrase)),
    close: () => harness.runAsAdmin("cryptsetup", "close", PLAIN_MAPPING!),
    remove: async () => {
      for (const name of names) await harness.runAsAdmin("lvm", "lvremove", "--yes", `${group}/${name}`);
    },
  };
}

/** Writes to or reads from a device past the page cache. @returns MiB per second */
async function throughput(harness: Harness, device: string, kind: "write" | "read"): Promise<number> {
  const blocks = ["bs=1M", `count=${DATA_MIB}`, "status=none"];
  const args = kind === "write"
    ? ["if=/dev/zero", `of=${device}`, ...blocks, "oflag=direct", "conv=fsync,nocreat"]
    : [`if=${device}`, "of=/dev/null", ...blocks, "iflag=direct"];
  return DATA_MIB! / await seconds(() => harness.runAsAdmin("dd", ...args));
}

async function seconds(body: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await body();
  return (performance.now() - start) / 1_000;
}

function push(values: Map<string, number[]>, key: string, value: number): void {
  values.set(key, [...values.get(key) ?? [], value]);
}

function median(values: ReadonlyMap<string, number[]>, key: string): number {
  const sorted = values.get(key)!.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)]!;
}
