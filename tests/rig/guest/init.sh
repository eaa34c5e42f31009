#!/bin/sh
# Process 1 of the guest. Sets the machine up, runs /work/.rig/script in /work, reports how it ended.
#
# To the host lead three lines in /dev/rig: "report" takes "up SECONDS", "running" with a list of processes and "exit STATUS",
# "script" the script's output, "out" a tar archive of /work/out. They rewrite and echo nothing.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C

mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# What systemd does on a node, and what mount propagation of CSI drivers builds on.
mount --make-rshared /
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr

. /work/.rig/settings
[ -e /dev/rig ] || modprobe -a virtio_console virtio_net
modprobe -a loop overlay veth bridge br_netfilter dm-thin-pool dm-snapshot dm-mirror dm-crypt dm-flakey
# Seconds of work (raid456 times its algorithms), so beside the rest. Who needs one sooner waits for it by loading it himself.
[ "$RIG_SLOW_MODULES" = 1 ] && modprobe -a dm-raid raid1 xfs btrfs &
/lib/systemd/systemd-udevd --daemon
udevadm trigger --action=add --subsystem-match=block --subsystem-match=misc --subsystem-match=net --subsystem-match=virtio-ports
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
  echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
hostname guest
ip link set lo up
if [ -e /sys/class/net/eth0 ]; then
  ip link set eth0 up
  ip address add 10.0.2.15/24 dev eth0
  ip route add default via 10.0.2.2
fi
udevadm settle -t 30
if [ ! -e /dev/rig ]; then # names that udev gives to virtio's ports and disks
  ln -s virtio-ports /dev/rig
  for number in $(seq 0 $((RIG_DATA_DISKS - 1))); do
    ln -s ../disk/by-id/virtio-data$number /dev/virtio-ports/data$number
  done
fi

DATA_DISKS=
for number in $(seq 0 $((RIG_DATA_DISKS - 1))); do
  DATA_DISKS="$DATA_DISKS${DATA_DISKS:+ }$(readlink -f /dev/rig/data$number)"
done
export DATA_DISKS

exec 9>/dev/rig/report
up=$(cut -d. -f1 /proc/uptime)
echo "up $up" >&9
if [ "$RIG_WATCH" -gt "$up" ]; then
  # Shortly before the host gives up: what it will say was running.
  (
    sleep $((RIG_WATCH - up))
    echo running >&9
    ps --ppid 2 -p 2 --deselect -o pid,ppid,etimes,stat,args >&9
  ) &
fi

cd /work
if [ "$RIG_TERMINAL" = 1 ]; then
  . .rig/env
  setsid -c sh .rig/script </dev/hvc0 >/dev/hvc0 2>&1 9>&-
  status=$?
else
  # A pipe between script and port: a port can be opened once only, and programs like to open /dev/stderr again.
  mkfifo /run/output
  cat /run/output >/dev/rig/script 9>&- &
  exec 8>/run/output
  (
    . .rig/env
    exec sh .rig/script
  ) </dev/null >&8 2>&1 8>&- 9>&-
  status=$?
  [ "$RIG_OUT" = 1 ] && [ -d out ] && tar -C out -cf /dev/rig/out .
fi
echo "exit $status" >&9
if [ "$RIG_TERMINAL" = 0 ]; then
  # The host ends the machine when it has read up to this mark: so no output is lost on the way.
  # By way of the pipe, which daemons that the script left may hold open.
  printf '\000%s\n' "$RIG_END" >&8
  sleep 60
fi
busybox poweroff -f
