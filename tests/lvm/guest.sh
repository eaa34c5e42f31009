# Runs in the guest: the contract tests over real LVM, and every kind of volume with a driver under the written permission set.
# At the same time csi-sanity in mount and block mode, each against a driver of its own on a group of its own. Then erasure,
# kills of a driver, and layouts. Last and alone, faults of disks. DATA_DISKS: two for the contract, one each for the modes,
# two for erasure, one each for the kinds and the kills, two for the faults. LEFT_OUT: see skipped_tests.ts.
set -- $DATA_DISKS
status=0
mkdir -p /work/out
# what LVM does beside its work on these throwaway disks, and what takes long under emulation
cat > /etc/lvm/lvmlocal.conf <<CONF
activation { monitoring = 0 }
backup { backup = 0 archive = 0 }
devices { md_component_detection = 0 multipath_component_detection = 0 fw_raid_component_detection = 0 }
CONF
rm -f /usr/lib/udev/rules.d/69-lvm.rules && udevadm control --reload # a pvscan for every change of the metadata
export DENO_NO_UPDATE_CHECK=1 NO_COLOR=1

# sanity NAME DISK: a driver, the whole suite against it, and the driver's clean end.
sanity() {
  socket=/tmp/$1/csi.sock
  group=sanity-$1
  vgcreate -qq --yes "$group" "$2" && mkdir -p "/tmp/$1" || return 1
  printf 'volumeGroup: %s\n' "$group" > "/tmp/$1/volume.yaml"
  printf 'snapSize: 20%%\n' > "/tmp/$1/snapshot.yaml"
  printf 'readIops: "500"\nwriteBpsPerGiB: 4Mi\n' > "/tmp/$1/mutable.yaml"
  /work/denolith standalone --endpoint "unix://$socket" --node-id "$1" --volume-groups "$group" \
    --mount-roots "/tmp/$1" --log-level debug > "/tmp/$1/driver.log" 2>&1 &
  driver=$!
  for _ in $(seq 300); do grep -q ' serving ' "/tmp/$1/driver.log" && break; sleep .1; done
  csi-sanity --ginkgo.no-color --ginkgo.skip "snapshot with accessibility requirements" --ginkgo.json-report "/work/out/$1.json" --csi.endpoint "unix://$socket" \
    --csi.testvolumesize 33554432 --csi.testvolumeexpandsize 67108864 --csi.testvolumeaccesstype "$1" \
    --csi.testvolumeparameters "/tmp/$1/volume.yaml" --csi.testsnapshotparameters "/tmp/$1/snapshot.yaml" \
    --csi.testvolumemutableparameters "/tmp/$1/mutable.yaml" \
    --csi.mountdir "/tmp/$1/target" --csi.stagingdir "/tmp/$1/staging" > "/tmp/$1/sanity.log" 2>&1
  result=$?
  # what was deleted is erased and removed in the background
  for _ in $(seq 120); do [ -z "$(lvs --noheadings -o lv_name "$group")" ] && break; sleep 1; done
  kill -TERM "$driver"; wait "$driver" || { echo "the driver did not end well after SIGTERM"; result=1; }
  [ ! -e "$socket" ] || { echo "the driver left its socket"; result=1; }
  left=$(lvs --noheadings -o lv_name "$group"; vgs --noheadings -o vg_tags "$group")
  [ -z "$(echo "$left" | tr -d ' \n')" ] || { echo "left in the group: $left"; result=1; }
  [ "$result" = 0 ] || { grep -A25 '\[FAILED\]' "/tmp/$1/sanity.log"; tail -50 "/tmp/$1/driver.log"; }
  return "$result"
}

# suite NAME: tests of the bundle, all that they print in a file.
suite() {
  /work/deno test -A --no-check --no-config "/work/$1.js" > "/tmp/$1.log" 2>&1
  echo $? > "/tmp/$1.status"
}

(
  sanity mount "$3"; echo $? > /tmp/mount.status
  sanity block "$4"; echo $? > /tmp/block.status
  DATA_DISKS="$5 $6" suite erasure
  DATA_DISK="$8" DRIVER=/work/denolith suite sigkill
  suite layouts
) > /tmp/sanity.log 2>&1 &
echo "== contract tests over real LVM (the other suites run beside them)"
DATA_DISKS="$1 $2" /work/deno test -A --no-check --no-config /work/contract.js || status=1
DATA_DISK="$7" suite permission_set
wait
for name in erasure permission_set sigkill layouts; do
  echo "== $name"
  cat "/tmp/$name.log"
  [ "$(cat "/tmp/$name.status")" = 0 ] || status=1
done
echo "== faults of disks, alone"
DATA_DISKS="$9 ${10}" /work/deno test -A --no-check --no-config /work/faults.js || status=1
cat /tmp/sanity.log
for mode in mount block; do
  echo "== csi-sanity, $mode mode"
  grep -E '^Ran |^(SUCCESS|FAIL)! ' "/tmp/$mode/sanity.log"
  [ "$(cat "/tmp/$mode.status")" = 0 ] || status=1
done
exit $status
