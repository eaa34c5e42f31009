#!/bin/sh
# After the installation and each upgrade. The unit is not enabled: the driver needs volume groups, in /etc/default/denolith.
# That systemd refuses, as it does for a masked unit, is no failure: the package would stay half configured.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
systemctl try-restart denolith.service || true
