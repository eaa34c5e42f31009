import { assertEquals } from "@std/assert";
import { formatAgentAddress, isIpv6, parseAgentAddress, podName } from "./remote_agent.ts";

Deno.test("the address of an agent is an IP address and a port", () => {
  for (const [text, ip] of [["10.0.0.7:9810", "10.0.0.7"], ["[fd00::7]:65535", "fd00::7"], ["[::]:1", "::"]] as const) {
    const parsed = parseAgentAddress(text)!;
    assertEquals([parsed.ip, formatAgentAddress(parsed)], [ip, text]);
  }
  const wrong = [
    ...[
      "",
      "b.example.com:1",
      "10.0.0.256:1",
      "10.0.0.07:1",
      "999.1.1.1:9810",
      "1.2.3:4",
      "10.0.0.7",
      "10.0.0.7:0",
      "10.0.0.7:65536",
    ],
    ...["[deadbeef]:9810", "[1:2:3]:9810", "[f:::7]:9810", "[12345::1]:9810", "[fd00::7]:0", "[fd00::7]:99999"],
    ...["[fd00::7]:9810\n", "[fd00::7%25eth0]:9810", "[fd00::7].evil.example:9810", "fd00::7:9810", "[10.0.0.7]:9810"],
    ...["[::::]:9810", "[1:2:3:4:5:6:7:8:9]:9810", "[a]:9810", "[:]:9810"],
  ];
  assertEquals(wrong.filter((text) => parseAgentAddress(text) !== undefined), []);
  assertEquals(["1:2:3", "::::", "fd00:::7", "fffff::1", "fd00::7%eth0", "10.0.0.7"].filter(isIpv6), []);
});

Deno.test("the name of a pod has its address as Kubernetes writes it, and no hyphen at an end", () => {
  const names = ["fd00:10:244::a7", "FD00:0:0::7", "2001:db8:0:1:1:1:1:1"].map((ip) => podName(ip, "ns.pod"));
  assertEquals(names, ["fd00-10-244--a7.ns.pod", "fd00--7.ns.pod", "2001-db8-0-1-1-1-1-1.ns.pod"]);
  const nameless = ["::1", "fd00::", "fe80::1", "fe90::1", "febf::1", "::ffff:10.0.0.7"];
  assertEquals(nameless.filter((ip) => podName(ip, "ns.pod") !== undefined), []);
});
