# The beginning of a guest in user-mode Linux, before the init that all guests have: the kernel's modules are read from the
# host, and ports and disks get the names that init looks for.
modules=/usr/lib/modules/$(uname -r)
mkdir -p "$modules" /dev/rig
host_modules=$(sed 's/.*rig.modules=\([^ ]*\).*/\1/' /proc/cmdline)
# the way in which newer tools mount does not know the path of hostfs
LIBMOUNT_FORCE_MOUNT2=always mount -t hostfs -o "$host_modules/$(uname -r)" none "$modules"
number=0
for port in report script out; do
  stty -F /dev/ttyS$number raw -echo
  ln -s /dev/ttyS$number /dev/rig/$port
  number=$((number + 1))
done
number=0
for disk in c d e f g h i j k l m n o p; do
  [ -e /dev/ubd$disk ] || break
  ln -s /dev/ubd$disk /dev/rig/data$number
  number=$((number + 1))
done
# kubelet reads the clock rate.
{
  sed '/^$/d' /proc/cpuinfo
  printf 'cpu MHz\t\t: 1000.000\n\n'
} >/work/.rig/cpuinfo
mount --bind /work/.rig/cpuinfo /proc/cpuinfo
for number in 0 1; do
  [ ! -e /sys/class/net/vec$number ] || ip link set vec$number name eth$number
done
# LVM does not know this kind of disk by itself. A disk has one partition at most.
sed -i 's/^devices {/devices {\n\ttypes = [ "ubd", 16 ]/' /etc/lvm/lvm.conf
exec /work/.rig/init
