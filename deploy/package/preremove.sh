#!/bin/sh
# Before the removal ("remove" of dpkg, 0 of rpm), but not before an upgrade. Volumes that are mounted stay.
set -e
case $1 in
remove | 0) [ ! -d /run/systemd/system ] || systemctl disable --now denolith.service || true ;;
esac
