# Runs in a guest: the suite SUITE, on the disks DATA_DISKS. See run.ts.
mkdir -p /work/out
# What LVM does beside its work on these throwaway disks, and what takes long under emulation. One suite has all of it.
if [ "$SUITE" != lvm_defaults ]; then
  cat > /etc/lvm/lvmlocal.conf <<CONF
activation { monitoring = 0 }
backup { backup = 0 archive = 0 }
devices { md_component_detection = 0 multipath_component_detection = 0 fw_raid_component_detection = 0 }
CONF
  rm -f /usr/lib/udev/rules.d/69-lvm.rules && udevadm control --reload # a pvscan for every change of the metadata
fi
if [ -e /work/policy ]; then
  # As on a host with SELinux. mount(8) takes SELinux for disabled without the file in /etc.
  mount -t selinuxfs selinuxfs /sys/fs/selinux
  mkdir -p /etc/selinux && echo SELINUX=enforcing > /etc/selinux/config
  cat /work/policy > /sys/fs/selinux/load && echo 1 > /sys/fs/selinux/enforce || exit 1
fi
export DENO_NO_UPDATE_CHECK=1 NO_COLOR=1

# sanity [encrypted-]MODE: a driver, the whole suite against it, and the driver's clean end.
sanity() {
  socket=/tmp/$1/csi.sock
  group=sanity-$1
  vgcreate -qq --yes "$group" "$DATA_DISKS" && mkdir -p "/tmp/$1" || return 1
  printf 'volumeGroup: %s\n' "$group" > "/tmp/$1/volume.yaml"
  case $1 in
    encrypted-*)
      printf 'encryption: luks2\n' >> "/tmp/$1/volume.yaml"
      passphrase=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
      printf 'NodeStageVolumeSecret:\n  passphrase: %s\n' "$passphrase" > "/tmp/$1/secrets.yaml" ;;
  esac
  printf 'snapSize: 20%%\n' > "/tmp/$1/snapshot.yaml"
  printf 'readIops: "500"\nwriteBpsPerGiB: 4Mi\n' > "/tmp/$1/mutable.yaml"
  /work/denolith standalone --endpoint "unix://$socket" --node-id "$1" --volume-groups "$group" \
    --mount-roots "/tmp/$1" --log-level debug > "/tmp/$1/driver.log" 2>&1 &
  driver=$!
  for _ in $(seq 300); do grep -q ' serving ' "/tmp/$1/driver.log" && break; sleep .1; done
  csi-sanity --ginkgo.no-color --ginkgo.skip "snapshot with accessibility requirements" --ginkgo.json-report "/work/out/$1.json" --csi.endpoint "unix://$socket" \
    --csi.testvolumesize 33554432 --csi.testvolumeexpandsize 67108864 --csi.testvolumeaccesstype "${1#encrypted-}" \
    --csi.testvolumeparameters "/tmp/$1/volume.yaml" --csi.testsnapshotparameters "/tmp/$1/snapshot.yaml" \
    --csi.testvolumemutableparameters "/tmp/$1/mutable.yaml" \
    ${passphrase:+--csi.secrets "/tmp/$1/secrets.yaml"} \
    --csi.mountdir "/tmp/$1/target" --csi.stagingdir "/tmp/$1/staging" > "/tmp/$1/sanity.log" 2>&1
  result=$?
  # what was deleted is erased and removed in the background
  for _ in $(seq 120); do [ -z "$(lvs --noheadings -o lv_name "$group")" ] && break; sleep 1; done
  kill -TERM "$driver"; wait "$driver" || { echo "the driver did not end well after SIGTERM"; result=1; }
  [ ! -e "$socket" ] || { echo "the driver left its socket"; result=1; }
  left=$(lvs --noheadings -o lv_name "$group"; vgs --noheadings -o vg_tags "$group")
  [ -z "$(echo "$left" | tr -d ' \n')" ] || { echo "left in the group: $left"; result=1; }
  if [ -n "$passphrase" ]; then
    grep -q 'cryptsetup luksFormat' "/tmp/$1/driver.log" || { echo "no volume was encrypted"; result=1; }
    ! grep -q "$passphrase" "/tmp/$1/driver.log" || { echo "the passphrase is in the log"; result=1; }
    [ -z "$(dmsetup ls --target crypt 2> /dev/null | grep denolith)" ] || { echo "mappings are left"; result=1; }
  fi
  [ "$result" = 0 ] || { grep -A25 '\[FAILED\]' "/tmp/$1/sanity.log"; tail -50 "/tmp/$1/driver.log"; }
  grep -E '^Ran |^(SUCCESS|FAIL)! ' "/tmp/$1/sanity.log"
  return "$result"
}

case $SUITE in
  csi-sanity-*) sanity "${SUITE#csi-sanity-}" ;;
  *) DATA_DISK="$DATA_DISKS" DRIVER=/work/denolith /work/deno test -A --no-check --no-config ${FILTER:+--filter "$FILTER"} "/work/$SUITE.js" ;;
esac
