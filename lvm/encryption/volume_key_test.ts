import { assertEquals } from "@std/assert";
import { parseHeaderKeys } from "./volume_key.ts";

/** What cryptsetup 2.6.1 printed of a volume that was encrypted again after a key slot with another key was added, without keys. */
const DUMP = `LUKS header information
Version:       	2
UUID:          	cd5a163f-9727-433c-8aa6-aac6cd90683c
Label:         	(no label)
Subsystem:     	(no subsystem)
Flags:       	(no flags)

Data segments:
  0: crypt
	offset: 16777216 [bytes]

Keyslots:
  1: luks2
	Key:        512 bits
	Priority:   ignored
	PBKDF:      pbkdf2
	Hash:       sha256
	Salt:       5f d3 fc 0f 9b a3 8e 96 39 31 0e d3 c4 55 f8 7c 
	            cd 9f 04 e1 61 f6 64 ed 31 34 4f 96 20 1f a4 02 
	AF hash:    sha256
	Area offset:163840 [bytes]
	Digest ID:  2
  7: luks2 (unbound)
	Key:        256 bits
	Salt:       19 8e 69 f6 7d 9f 5e 3b 19 62 62 8e c0 9d 6a 7e 
	            59 d6 02 64 50 34 8a c2 0b 59 0d fa 98 6c 8b 17 
	Digest ID:  0
Tokens:
  0: luks2-keyring
	Key description: test
	Keyslot:    1
Digests:
  0: pbkdf2
	Hash:       sha256
	Salt:       42 37 b0 8e 9c f3 00 07 eb 90 61 f6 84 6d a6 9d 
	            b3 4b 24 97 85 c9 87 76 08 b2 c7 ab 91 06 03 92 
	Digest:     8a b3 12 07 1b e5 ef e3 9b 60 94 31 48 85 06 11 
  2: pbkdf2
	Hash:       sha256
	Salt:       53 e4 e6 07 37 83 a2 fe 37 a1 be 36 87 68 a2 e2 
	            9e 12 69 6a 51 92 07 16 eb 7e a9 9a 15 87 0d e3 
	Digest:     1d ec 9a 17 22 3b 36 41 34 06 4f 3a 9b 19 4d ac 
`;

Deno.test("the salt of a header is that of its volume key, and a key slot of another key is none of the volume", () => {
  const keys = { isReencrypting: false, slots: new Map([[1, "5fd3fc0f"]]) };
  assertEquals(parseHeaderKeys(DUMP), { ...keys, salt: "53e4e607" });
  assertEquals(parseHeaderKeys(DUMP.replace("Digest ID:  2", "Digest ID:  0")), { ...keys, salt: "4237b08e" });
});

Deno.test("the salt of a header without a key slot is that of its only digest", () => {
  const none = DUMP.replace(/^ {2}1: luks2\n[^]*?(?= {2}7)/m, "");
  assertEquals(parseHeaderKeys(none), { isReencrypting: false, slots: new Map() });
  const one = none.replace(/^ {2}7: [^]*?(?=Tokens)/m, "").replace(/^ {2}0: pbkdf2\n[^]*?(?= {2}2)/m, "");
  assertEquals(parseHeaderKeys(one).salt, "53e4e607");
});

Deno.test("a header has no salt while its data is encrypted by another key, and its key slots may have two digests", () => {
  const dump = DUMP.replace("(unbound)", "").replace("7: luks2 \n", "7: luks2\n");
  assertEquals(parseHeaderKeys(dump).salt, undefined);
  const reencrypting = DUMP.replace("(no flags)", "(no flags)\nRequirements:	online-reencrypt-v2 ");
  assertEquals([parseHeaderKeys(reencrypting).salt, parseHeaderKeys(reencrypting).isReencrypting], [undefined, true]);
});
