import { contractTests } from "./contract/all.ts";
import { fakeHost } from "./contract/fake_host.ts";

contractTests(fakeHost);
