# Becomes a kernel in the network namespace of its own. slirp4netns, which runs outside, makes the namespace's only interface;
# the kernel takes its frames from there.
ready=$1
shift
: >"$ready"
until ip link show tap0 >/dev/null 2>&1; do sleep .05; done
ip link set tap0 up
exec "$@"
