import { contractTests } from "./all.ts";
import { layoutsContract } from "./layouts.ts";
import { fakeHost, fakeMultiPvHost } from "./fake_host.ts";

contractTests(fakeHost);
layoutsContract(fakeMultiPvHost);
