#!/bin/sh
# After the removal: what the program unpacked goes, too. Volumes and their tags are LVM's.
set -e
case $1 in
remove | 0)
  rm -rf "${DPKG_ROOT:-}/var/cache/denolith"
  [ ! -d /run/systemd/system ] || systemctl daemon-reload || true
  ;;
esac
