# Becomes a kernel in the network namespace of its own. Who runs outside makes the namespace's interfaces, such as
# slirp4netns; the kernel takes its frames from there.
ready=$1
interfaces=$2
shift 2
: >"$ready"
for interface in $interfaces; do
  until ip link show "$interface" >/dev/null 2>&1; do sleep .05; done
  ip link set "$interface" up
done
exec "$@"
