import { assertEquals } from "@std/assert";
import { extDefaults, missingXfsFeatures, xfsDefaults, xfsKernelOptions } from "./mkfs_defaults.ts";

Deno.test("extDefaults() sets blocks of 4 KiB, unless a request has its own or needs smaller ones", () => {
  for (const options of ["", "-m 0", "-J size=4", "-J size=64", "-C 65536", "-T small"]) {
    assertEquals(extDefaults(options.split(" ")), ["-b", "4096"], options);
  }
  for (const options of ["-b 1024", "-b 4096", "-J size=1", "-m 0 -J size=3", "-C 2048"]) {
    assertEquals(extDefaults(options.split(" ")), [], options);
  }
});

Deno.test("xfsDefaults() sets sectors of 4 KiB, unless a request has its own or smaller blocks", () => {
  for (const options of ["", "-b size=4096", "-b size=4k", "-b size=16k", "-i size=512"]) {
    assertEquals(xfsDefaults(options.split(" ")), ["-s", "size=4096"], options);
  }
  for (const options of ["-s size=512", "-b size=512", "-b size=1k", "-b size=2k", "-b size=1024", "-b size=2048"]) {
    assertEquals(xfsDefaults(options.split(" ")), [], options);
  }
});

Deno.test("xfsKernelOptions() switches off what the kernel does not know and mkfs.xfs does", () => {
  const rows = [
    ["4.18.0-553.el8_10.x86_64", "mkfs.xfs version 6.1.0\n", "-m bigtime=0 -m inobtcount=0 -i nrext64=0"],
    ["5.4.0-150-generic", "mkfs.xfs version 5.10.0\n", "-m bigtime=0 -m inobtcount=0"],
    ["5.4.0-150-generic", "mkfs.xfs version 5.3.0\n", ""],
    ["5.9.16", "mkfs.xfs version 6.13.0\n", "-m bigtime=0 -m inobtcount=0 -i nrext64=0"],
    ["5.10.0-8-amd64", "mkfs.xfs version 6.13.0\n", "-i nrext64=0"],
    ["5.19.1", "mkfs.xfs version 6.13.0\n", ""],
    ["6.1.0", "mkfs.xfs version 6.13.0\n", ""],
    ["unknown", "mkfs.xfs version 6.13.0\n", ""],
  ] as const;
  for (const [kernel, mkfs, expected] of rows) {
    assertEquals(xfsKernelOptions({ kernel, mkfs }, []).join(" "), expected, `${kernel} ${mkfs}`);
  }
  const requested = ["-m", "bigtime=1,reflink=0"];
  const versions = { kernel: "5.4.0", mkfs: "mkfs.xfs version 6.1.0" };
  assertEquals(xfsKernelOptions(versions, requested), ["-m", "inobtcount=0", "-i", "nrext64=0"]);
  assertEquals(missingXfsFeatures("5.10.0"), ["nrext64"]);
});
