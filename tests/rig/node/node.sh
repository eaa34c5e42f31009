# Runs in a guest: makes it a node of the cluster on the host, until the machine is switched off. What takes long goes side by
# side; what is there from before a power cycle is taken as it is.
. node/settings
hostname "$NODE_NAME"
busybox nc -ll -p "$EXEC_PORT" -e /work/node/answer.sh &

# No pod's network outlives a power cut. What is cached of it may be cut short, and then containerd can never remove the sandbox.
rm -rf /var/lib/cni
mkdir -p /etc/cni/net.d /etc/containerd
cp node/cni.conflist /etc/cni/net.d/10-rig.conflist
cp node/containerd.toml /etc/containerd/config.toml
setsid containerd --log-level warn >>/var/log/containerd.log 2>&1 </dev/null &

(
  # Pods reach the host with their own addresses: the node answers for them on its network.
  echo 1 >/proc/sys/net/ipv4/ip_forward
  echo 1 >/proc/sys/net/ipv4/conf/eth0/proxy_arp
  if [ -n "$SHARED_ADDRESS" ]; then
    ip address add "$SHARED_ADDRESS/24" dev eth1
    ip link set eth1 up
    for route in $ROUTES; do # SUBNET:ADDRESS
      ip route add "${route%:*}" via "${route#*:}"
    done
  fi
  # The address of the API's service leads to the host, for pods as for the node, without kube-proxy. Not every kernel here
  # has what iptables takes.
  ip address add "$API_SERVICE/32" dev lo
  ip route replace local "$API_SERVICE" dev lo table local src "$NODE_ADDRESS"
  modprobe ip_vs_rr
  ipvsadm --add-service --tcp-service "$API_SERVICE:443" --scheduler rr
  ipvsadm --add-server --tcp-service "$API_SERVICE:443" --real-server "$API_ADDRESS" --masquerading
  # What LVM does beside its work, on disks that are thrown away.
  [ -s /etc/lvm/lvmlocal.conf ] && grep -q rig /etc/lvm/lvmlocal.conf ||
    printf '# rig\nactivation { monitoring = 0 }\nbackup { backup = 0 archive = 0 }\n' >/etc/lvm/lvmlocal.conf
  set -- $DATA_DISKS
  for group in $VOLUME_GROUPS; do # NAME:NUMBER-OF-DISKS
    disks=
    for _ in $(seq "${group#*:}"); do
      disks="$disks $1"
      shift
    done
    vgs "${group%:*}" >/dev/null 2>&1 || vgcreate -qq --yes "${group%:*}" $disks
  done
  touch /run/volume-groups-made
) &

while [ ! -S /run/containerd/containerd.sock ]; do sleep .1; done
sh node/start_kubelet.sh
mkdir -p /var/lib/rig/imported
for archive in node/images/*.tar; do
  mark=/var/lib/rig/imported/${archive##*/}
  [ -e "$mark" ] && continue
  until ctr -n k8s.io images import "$archive"; do sleep 1; done
  touch "$mark"
done
touch /run/images-imported
while true; do sleep 86400; done
