import { assertEquals } from "@std/assert";
import { commandsFor, inCluster } from "./commands.ts";

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
  const accept = "kubectl denolith disks --accept ata-TOSHIBA-TR200 --node n1";
  assertEquals(of("node/n1", [accept]), [accept, "kubectl denolith why node/n1"]);
  assertEquals(of("pod/shop/web-0", []), ["kubectl denolith why pod/web-0 --namespace shop"]);
  assertEquals(of("volumesnapshot/shop/cut", []), ["kubectl denolith why volumesnapshot/cut --namespace shop"]);
  assertEquals(of("lease/lvm-denolith-dev", ["kubectl get leases"]), ["kubectl get leases"]);
});

Deno.test("commandsFor() names a command once", () => {
  const commands = ["kubectl denolith why db --namespace shop"];
  assertEquals(commandsFor({ object: "claim/shop/db", commands }, { context: "" }), commands);
});

Deno.test("commandsFor() has names of others as words of a shell", () => {
  assertEquals(commandsFor({ object: "claim/shop/$(rm)", commands: [] }, { context: "" }), [
    "kubectl denolith why '$(rm)' --namespace shop",
  ]);
});

Deno.test("inCluster() names the cluster and the driver of the page, each as one word of a shell", () => {
  const pods = "kubectl get pods";
  assertEquals(inCluster(pods, { context: "" }), pods);
  assertEquals(inCluster(pods, { context: "admin@prod:6443" }), `${pods} --context admin@prod:6443`);
  assertEquals(inCluster(pods, { context: "it's; rm" }), `${pods} --context 'it'\\''s; rm'`);
  const other = { context: "prod", kubeconfig: "/my files/config", driver: "lvm.example.com" };
  const flags = "--context prod --kubeconfig '/my files/config'";
  assertEquals(inCluster(pods, other), `${pods} ${flags}`);
  assertEquals(
    inCluster("kubectl denolith orphans", other),
    `kubectl denolith orphans ${flags} --driver-name lvm.example.com`,
  );
});
