#!/bin/sh
# Runs in the unpacked Debian system: packs /initrd.gz from busybox, /initrd_init and the modules that it takes to mount the
# root disk, in the order in which they depend on each other.
set -eu
kernel=$(ls /usr/lib/modules)
tree=/initrd
mkdir -p $tree/bin $tree/dev $tree/modules $tree/new $tree/proc $tree/sys
cp /bin/busybox $tree/bin/
install -m 755 /initrd_init $tree/init
number=100
for module in virtio_pci virtio_blk ext4; do
  for file in $(modprobe -S "$kernel" --show-depends $module | busybox awk '$1 == "insmod" { print $2 }'); do
    name=$(basename "$file")
    ls $tree/modules | grep -q "^[0-9]*-$name\$" && continue
    cp "$file" "$tree/modules/$number-$name"
    number=$((number + 1))
  done
done
cd $tree
find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >/initrd.gz
