import { contractTests } from "./all.ts";
import { layoutsContract } from "./layouts.ts";
import { faultsContract } from "./faults.ts";
import { fakeFaultyDisks, fakeHost, fakeMultiPvHost } from "./fake_host.ts";

contractTests(fakeHost);
layoutsContract(fakeMultiPvHost);
faultsContract(fakeFaultyDisks());
