/**
 * The fake machine's LUKS headers and mappings, after cryptsetup 2.6.
 *
 * @module
 */

import type { Command, Output } from "../../../lvm/exec.ts";
import { blankContent, type DeviceContent, type FakeLuks } from "./device_content.ts";
import {
  expectArgs,
  failure,
  type FakeGroup,
  type FakeLv,
  type FakeMachine,
  isMounted,
  isReadOnly,
  ok,
  type Tool,
} from "./machine.ts";

/** What a header takes of a device, in bytes. */
export const HEADER_BYTES = 16n << 20n;

/** A mapping with the LV that it is made of. */
interface OpenMapping {
  readonly group: FakeGroup;
  readonly parent: FakeLv;
  /** The mapping itself, as a device like that of an LV. */
  readonly lv: FakeLv;
}

/** Returns the mappings that are open. */
export function mappingsOf(machine: FakeMachine): OpenMapping[] {
  return machine.allLvs().flatMap(({ group, lv }) =>
    lv.mapping === undefined ? [] : [{ group, parent: lv, lv: lv.mapping }]
  );
}

/** Reports whether a device is a mapping, and no LV. */
export function isMapping({ uuid }: FakeLv): boolean {
  return uuid.startsWith("CRYPT-");
}

/** Returns the LV of a device, and its group: the LV itself, or the one that a mapping is made of. */
export function ownerOf(machine: FakeMachine, device: FakeLv): { readonly group: FakeGroup; readonly lv: FakeLv } {
  return machine.allLvs().find(({ lv }) => lv === device || lv.mapping === device)!;
}

/** Returns the content of an LV that a pod sees: what is below its LUKS header, if it has one. */
export function contentOf({ content }: FakeLv): DeviceContent {
  return content.luks?.content ?? content;
}

/** Returns cryptsetup with what it reads from its standard input. */
export async function cryptsetupWith(input: Command["input"]): Promise<Tool> {
  let bytes: number[] = [];
  for await (const part of input ?? []) bytes = [...bytes, ...part];
  const passphrase = new TextDecoder().decode(Uint8Array.from(bytes));
  return (machine, args) => cryptsetup(machine, args, passphrase);
}

function cryptsetup(machine: FakeMachine, args: readonly string[], passphrase: string): Output {
  if (args[0] === "close") return close(machine, args);
  if (args[0] === "resize") return resize(machine, args);
  if (args[0] === "luksUUID") return luksUuid(machine, args);
  if (args[0] === "luksDump") return luksDump(machine, args);
  if (args[0] === "config") return config(machine, args);
  if (passphrase === "") return failure(1, "Nothing to read on input.");
  if (args[0] === "luksFormat") return luksFormat(machine, args, passphrase);
  if (args[0] === "luksAddKey") return luksAddKey(machine, args, passphrase);
  if (args[0] === "reencrypt") return reencrypt(machine, args, passphrase);
  if (args[0] === "luksKillSlot") return luksKillSlot(machine, args, passphrase);
  if (args.includes("--test-passphrase")) {
    return testPassphrase(machine, args, passphrase);
  }
  expectArgs(
    args,
    /^open --type luks2 --disable-keyring (?:--allow-discards )?--batch-mode --key-file - \/\S+ [^/ ]+$/,
  );
  return open(machine, args.at(-2)!, args.at(-1)!, passphrase);
}

function testPassphrase(machine: FakeMachine, args: readonly string[], passphrase: string): Output {
  expectArgs(
    args,
    /^open --test-passphrase --verbose --type luks2 (?:--key-slot \d+ )?--batch-mode --key-file - \/\S+$/,
  );
  const [, slot] = /--key-slot (\d+)/.exec(args.join(" ")) ?? [];
  const { luks, refusal } = unlock(machine, args.at(-1)!, passphrase, slot === undefined ? undefined : Number(slot));
  if (refusal !== undefined) return refusal;
  const isTried = (index: number) => slot !== undefined || !luks.ignored?.includes(index);
  const opened = luks.passphrases.findIndex((each, index) => each === passphrase && isTried(index));
  return ok(`Key slot ${slot ?? opened} unlocked.\nCommand successful.\n`);
}

function luksFormat(machine: FakeMachine, args: readonly string[], passphrase: string): Output {
  expectArgs(
    args,
    /^luksFormat --type luks2 --uuid [0-9a-f-]{36} (?:--subsystem [A-Za-z0-9._-]{1,32} )?--pbkdf argon2id --pbkdf-memory 65536 --pbkdf-force-iterations 4 --pbkdf-parallel 1 --batch-mode --key-file - \/\S+$/,
  );
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return failure(4, `Device ${path} does not exist or access denied.`);
  if (lv.mapping !== undefined || isMounted(machine, lv)) return inUse(path);
  if (isReadOnly(lv)) return failure(4, `Cannot write to device ${path}, permission denied.`);
  const uuid = args[4]!;
  // the rest of the disk, decrypted with a new key, is random
  const luks: FakeLuks = {
    ...{ uuid, passphrases: [passphrase], volumeKey: 0, content: { ...blankContent(), zeroHead: false } },
    ...(args[5] === "--subsystem" && { subsystem: args[6]! }),
  };
  Object.assign(lv.content, { ...blankContent(), zeroHead: false, signatures: headersOf(uuid), luks });
  return ok();
}

/** Prints what the driver reads of a header. */
function luksDump(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^luksDump \/\S+$/);
  const { luks, refusal } = findLuks(machine, args[1]!);
  if (refusal !== undefined) return refusal;
  const { subsystem = "(no subsystem)", isReencrypting, volumeKey } = luks;
  const requirements = isReencrypting ? "Requirements:\tonline-reencrypt-v2\n" : "";
  const slots = luks.passphrases.map((key, slot) =>
    key === undefined
      ? ""
      : `  ${slot}: luks2\n\tKey:        512 bits\n${saltLine([...key, `${volumeKey}`])}\tDigest ID:  0\n`
  );
  const keys = `Keyslots:\n${slots.join("")}Tokens:\nDigests:\n  0: pbkdf2\n${saltLine([`${volumeKey}`])}`;
  return ok(`LUKS header information\nSubsystem:     \t${subsystem}\n${requirements}${keys}`);
}

/** Returns a line with a salt, which is random on a real machine. @param text what has its own salt */
function saltLine(text: readonly string[]): string {
  const number = text.reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)!) >>> 0, 7);
  const bytes = number.toString(16).padStart(8, "0").replaceAll(/../g, "$& ");
  return `\tSalt:       ${bytes}36 ce 83 0b \n\t            5e 0a 11 d2 36 ce 83 0b \n`;
}

function config(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^config --subsystem [A-Za-z0-9._+-]{1,47} \/\S+$/);
  const { luks, refusal } = findLuks(machine, args[3]!);
  if (refusal !== undefined) return refusal;
  if (luks.isReencrypting) return incompatible();
  luks.subsystem = args[2]!;
  return ok();
}

function reencrypt(machine: FakeMachine, args: readonly string[], passphrase: string): Output {
  const begin =
    /^reencrypt --init-only --key-slot \d+ --pbkdf argon2id --pbkdf-memory 65536 --pbkdf-force-iterations 4 --pbkdf-parallel 1 --batch-mode --key-file - \/\S+$/;
  const isBegin = args[1] === "--init-only";
  expectArgs(args, isBegin ? begin : /^reencrypt --resume-only --batch-mode --key-file - \/\S+$/);
  const { lv, luks, refusal } = unlock(machine, args.at(-1)!, passphrase);
  if (refusal !== undefined) return refusal;
  if (lv.mapping !== undefined) throw new Error(`encrypting ${args.at(-1)} again, which is open`);
  if (isReadOnly(lv)) return failure(1, `Cannot write to device ${args.at(-1)}, permission denied.`);
  if (isBegin === (luks.isReencrypting ?? false)) {
    return failure(1, `Device reencryption ${isBegin ? "already" : "not"} in progress.`);
  }
  if (isBegin) {
    luks.isReencrypting = true;
    luks.passphrases = luks.passphrases.map((each) => each === passphrase ? each : undefined);
    return ok();
  }
  delete luks.isReencrypting;
  luks.volumeKey++;
  return ok();
}

function incompatible(): Output {
  return failure(1, "Operation incompatible with device marked for LUKS2 reencryption. Aborting.");
}

function luksAddKey(machine: FakeMachine, args: readonly string[], input: string): Output {
  expectArgs(
    args,
    /^luksAddKey --pbkdf argon2id --pbkdf-memory 65536 --pbkdf-force-iterations 4 --pbkdf-parallel 1 --batch-mode --key-file - --keyfile-size \d+ --new-keyfile-size \d+ \/\S+ -$/,
  );
  const [length, added] = [args.indexOf("--keyfile-size"), args.indexOf("--new-keyfile-size")].map((index) =>
    Number(args[index + 1])
  );
  const bytes = new TextEncoder().encode(input);
  if (bytes.length !== length! + added!) throw new Error(`${bytes.length} bytes for ${args.join(" ")}`);
  const [passphrase, next] = [bytes.slice(0, length), bytes.slice(length)].map((part) =>
    new TextDecoder().decode(part)
  );
  const { lv, luks, refusal } = unlock(machine, args.at(-2)!, passphrase!);
  if (refusal !== undefined) return refusal;
  if (luks.isReencrypting) return incompatible();
  if (isReadOnly(lv)) return failure(1, `Cannot write to device ${args.at(-2)}, permission denied.`);
  const free = luks.passphrases.indexOf(undefined);
  luks.passphrases[free < 0 ? luks.passphrases.length : free] = next;
  return ok();
}

function luksKillSlot(machine: FakeMachine, args: readonly string[], passphrase: string): Output {
  expectArgs(args, /^luksKillSlot --batch-mode --key-file - \/\S+ \d+$/);
  const [path, slot] = [args.at(-2)!, Number(args.at(-1))];
  const found = findLuks(machine, path);
  if (found.refusal !== undefined) return found.refusal;
  const { lv, luks: { passphrases, isReencrypting } } = found;
  if (passphrases[slot] === undefined) return failure(1, `Keyslot ${slot} is not active.`);
  // 2.6.1 has no passphrase that it accepts meanwhile
  if (isReencrypting) return failure(2, "No key available with this passphrase.");
  // the passphrase must open another slot; if there is none, it must open this one, which is destroyed all the same
  const isLast = passphrases.every((other, index) => index === slot || other === undefined);
  if (!passphrases.some((other, index) => (index !== slot || isLast) && other === passphrase)) {
    return failure(2, "No key available with this passphrase.");
  }
  if (isReadOnly(lv)) return failure(1, `Cannot write to device ${path}, permission denied.`);
  passphrases[slot] = undefined;
  return ok();
}

/** Copies a header with its key slots: what is below it stays. */
export function copyHeader(from: FakeLv, to: FakeLv): void {
  const { luks, signatures, zeroHead } = from.content;
  const below = to.content.luks?.content ?? blankContent();
  Object.assign(to.content, { zeroHead, signatures: signatures.map((each) => ({ ...each })) });
  to.content.luks = luks && { ...luks, passphrases: [...luks.passphrases], content: below };
}

/** Returns the signatures that libblkid finds: LUKS has its header twice. */
export function headersOf(uuid: string): { type: string; uuid: string }[] {
  return [{ type: "crypto_LUKS", uuid }, { type: "crypto_LUKS", uuid }];
}

function open(machine: FakeMachine, path: string, name: string, passphrase: string): Output {
  if (mappingsOf(machine).some(({ lv }) => lv.name === name)) return failure(5, `Device ${name} already exists.`);
  const { lv, luks, refusal } = unlock(machine, path, passphrase);
  if (refusal !== undefined) return refusal;
  if (lv.mapping !== undefined || isMounted(machine, lv)) return inUse(path);
  const others = lv.content.signatures.filter(({ type }) => type !== "crypto_LUKS");
  lv.content.signatures = [...headersOf(luks.uuid), ...others]; // it repairs a header by the other one
  lv.mapping = {
    ...{ name, uuid: `CRYPT-LUKS2-${luks.uuid.replaceAll("-", "")}-${name}`, size: lv.size - HEADER_BYTES },
    ...{
      tags: new Set<string>(),
      active: true,
      suspended: false,
      permission: lv.permission,
      setReadOnly: isReadOnly(lv),
    },
    ...{ minor: machine.nextMinor(), createdAt: lv.createdAt, content: luks.content },
    ...{ cowPercent: 0, invalid: false, zeroedTo: 0n },
  };
  return ok();
}

type Unlocked =
  | { readonly lv: FakeLv; readonly luks: FakeLuks; readonly refusal?: undefined }
  | { readonly lv?: undefined; readonly luks?: undefined; readonly refusal: Output };

/** @param slot the key slot that is tried; any of them by default */
function unlock(machine: FakeMachine, path: string, passphrase: string, slot?: number): Unlocked {
  const found = findLuks(machine, path);
  if (found.refusal !== undefined) return found;
  const { passphrases, ignored = [] } = found.luks;
  const tried = slot === undefined ? passphrases.filter((_, index) => !ignored.includes(index)) : [passphrases[slot]];
  if (tried.every((each) => each === undefined)) {
    return { refusal: failure(1, "No usable keyslot is available.") };
  }
  return tried.includes(passphrase) ? found : { refusal: failure(2, "No key available with this passphrase.") };
}

function findLuks(machine: FakeMachine, path: string): Unlocked {
  const lv = machine.lvAt(path);
  if (lv === undefined) return { refusal: failure(4, `Device ${path} does not exist or access denied.`) };
  const { luks, signatures, unreadable } = lv.content;
  // it says the same of a disk that fails
  if (!unreadable && luks !== undefined && signatures.some(({ uuid }) => uuid === luks.uuid)) return { lv, luks };
  return { refusal: failure(1, `Device ${path} is not a valid LUKS device.`) };
}

function close(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^close [^/ ]+$/);
  const found = mappingsOf(machine).find(({ lv }) => lv.name === args[1]);
  if (found === undefined) return failure(4, `Device ${args[1]} is not active.`);
  const { parent, lv } = found;
  if (isMounted(machine, lv) || machine.openLvs.includes(lv)) return failure(5, `Device ${lv.name} is still in use.`);
  machine.removeDevice(lv);
  parent.mapping = undefined;
  return ok();
}

function resize(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^resize --batch-mode [^/ ]+$/);
  const found = mappingsOf(machine).find(({ lv }) => lv.name === args[2]);
  if (found === undefined) return failure(4, `Device ${args[2]} is not active.`);
  found.lv.size = found.parent.size - HEADER_BYTES;
  return ok();
}

function luksUuid(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^luksUUID --batch-mode --uuid [0-9a-f-]{36} \/\S+$/);
  const [, , , uuid, path] = args as [string, string, string, string, string];
  const lv = machine.lvAt(path);
  if (lv?.content.luks === undefined) return failure(1, `Device ${path} is not a valid LUKS device.`);
  if (lv.content.luks.isReencrypting) return incompatible();
  if (isReadOnly(lv)) return failure(1, `Cannot write to device ${path}, permission denied.`);
  if (lv.mapping !== undefined) throw new Error(`changing the header of ${path}, which is open`);
  lv.content.luks.uuid = uuid;
  lv.content.signatures = headersOf(uuid);
  return ok();
}

function inUse(path: string): Output {
  return failure(5, `Cannot use device ${path} which is in use (already mapped or mounted).`);
}
