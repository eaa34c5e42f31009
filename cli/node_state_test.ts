import { assertEquals } from "@std/assert";
import { FakeClock } from "../tests/fake/clock.ts";
import { NodeState } from "./node_state.ts";

Deno.test("NodeState: an agent is ready once it is registered and LVM has answered, and until LVM stops answering", async () => {
  const clock = new FakeClock();
  const state = new NodeState(clock);
  assertEquals(state.notReadyReasons(), [
    "registration: kubelet has not asked for the driver yet",
    "LVM has not answered yet",
  ]);
  state.registrationError = undefined;
  state.recordSurvey([]);
  await clock.advance(300_000);
  assertEquals(state.notReadyReasons(), []);
  await clock.advance(1);
  assertEquals(state.notReadyReasons(), ["LVM has not answered for 300 s"]);
  state.recordSurvey([]);
  assertEquals([state.notReadyReasons(), state.survey], [[], []]);
});
