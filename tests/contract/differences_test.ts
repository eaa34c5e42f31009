import { differencesContract } from "./differences.ts";
import { fakeHost } from "./fake_host.ts";
import { metadataSnapshotsContract } from "./metadata_snapshots.ts";

differencesContract(fakeHost);
metadataSnapshotsContract(fakeHost);
