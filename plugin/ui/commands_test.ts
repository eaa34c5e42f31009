import { assertEquals } from "@std/assert";
import { commandsFor, inContext } from "./commands.ts";

Deno.test("commandsFor() has the commands of the remedy with names in place of words, and the one that explains the object", () => {
  const of = (object: string, commands: readonly string[], node?: string) =>
    commandsFor({ object, commands }, { context: "", node });
  const doctor = "kubectl denolith doctor NODE";
  assertEquals(of("claim/shop/db", [doctor, "kubectl denolith move CLAIM --cancel"], "n1"), [
    "kubectl denolith doctor n1",
    "kubectl denolith move db --namespace shop --cancel",
    "kubectl denolith why db --namespace shop",
  ]);
  assertEquals(of("node/n2", [doctor], undefined), ["kubectl denolith doctor n2", "kubectl denolith why node/n2"]);
  // of what is not known, there is no command
  assertEquals(of("lvmvolume/v1-a", [doctor, "kubectl denolith disks --withdraw DISK"]), [
    "kubectl denolith why lvmvolume/v1-a",
  ]);
  assertEquals(of("pod/shop/web-0", []), ["kubectl denolith why pod/web-0 --namespace shop"]);
  assertEquals(of("volumesnapshot/shop/cut", []), ["kubectl denolith why volumesnapshot/cut --namespace shop"]);
  assertEquals(of("lease/lvm-denolith-dev", ["kubectl get leases"]), ["kubectl get leases"]);
});

Deno.test("commandsFor() names a command once", () => {
  const commands = ["kubectl denolith why db --namespace shop"];
  assertEquals(commandsFor({ object: "claim/shop/db", commands }, { context: "" }), commands);
});

Deno.test("inContext() names the cluster of the page, as one word of a shell", () => {
  assertEquals(inContext("kubectl get pods", ""), "kubectl get pods");
  assertEquals(inContext("kubectl get pods", "admin@prod:6443"), "kubectl get pods --context admin@prod:6443");
  assertEquals(inContext("kubectl get pods", "it's; rm"), "kubectl get pods --context 'it'\\''s; rm'");
});
