# Starts kubelet; one that runs is ended first, as a service manager would.
. /work/node/settings
if [ -e /run/kubelet.pid ]; then
  kill "$(cat /run/kubelet.pid)" 2>/dev/null
  while kill -0 "$(cat /run/kubelet.pid)" 2>/dev/null; do sleep .1; done
fi
mkdir -p "$KUBELET_ROOT"
setsid /work/node/kubelet --config /work/node/kubelet.json --kubeconfig /work/node/kubeconfig \
  --hostname-override "$NODE_NAME" --root-dir "$KUBELET_ROOT" $KUBELET_FLAGS >>/var/log/kubelet.log 2>&1 </dev/null &
echo $! >/run/kubelet.pid
