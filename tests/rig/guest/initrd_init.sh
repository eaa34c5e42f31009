#!/bin/busybox sh
# The first program in the guest: brings in the disk drivers, finds the root and the payload disk by their serial numbers,
# and hands over to the payload's init.
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
$bb mount -t devtmpfs dev /dev
for module in /modules/*; do $bb insmod "$module"; done
for disk in /sys/block/vd*; do
  case $($bb cat "$disk/serial") in
    root) root=/dev/${disk##*/} ;;
    payload) payload=/dev/${disk##*/} ;;
  esac
done
$bb mount -t ext4 -o noatime "$root" /new
$bb mount -t ext4 -o noatime "$payload" /new/work
for folder in proc sys dev; do $bb mount --move /$folder /new/$folder; done
exec $bb switch_root /new /work/.rig/init
