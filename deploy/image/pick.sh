#!/bin/sh
# pick.sh PACKAGES OUT: copies from the Debian that this runs in what PACKAGES (packages.txt) names, with all that it is
# linked with, into the folder OUT: a system without a shell, a package manager or anything else that nobody starts.
# Further: what dpkg knows of the packages that something was taken of, for scanners, and their licences.
set -euf
out=$2
packages=$(mktemp)
trap 'rm -f "$packages"' EXIT

fail() {
  echo "pick.sh: $*" >&2
  exit 1
}

# The path of a file: as it is given, or where programs and libraries are.
find_file() {
  case $1 in
  /*) set -- "$1" "$1" ;;
  *) set -- "$1" /usr/sbin/"$1" /usr/bin/"$1" "/usr/lib/$(uname -m)-linux-gnu/$1" ;;
  esac
  name=$1
  shift
  for path in "$@"; do
    [ -e "$path" ] && echo "$path" && return
  done
  fail "there is no file $name"
}

# Notes the package that a file belongs to. dpkg has some paths without /usr, from before /bin was a link.
note_package() {
  owner=$(dpkg -S "$1" 2>/dev/null || dpkg -S "${1#/usr}" 2>/dev/null) || return 0
  printf '%s\n' "${owner%%:*}" >>"$packages"
}

# What a link leads to.
target_of() {
  target=$(readlink "$1")
  case $target in
  /*) echo "$target" ;;
  *) echo "${1%/*}/$target" ;;
  esac
}

# Copies a file, and the target if it is a link.
copy() {
  from=$(readlink -f "${1%/*}")/${1##*/}
  [ -e "$out$from" ] && return
  mkdir -p "$out${from%/*}"
  cp -a "$from" "$out$from"
  note_package "$from"
  [ ! -L "$from" ] || copy "$(target_of "$from")"
}

mkdir -p "$out"
# where programs, and the loader of programs, are looked for as well
for name in bin sbin lib lib64; do
  mkdir -p "$out/usr/$name"
  ln -s "usr/$name" "$out/$name"
done

files=$(sed -e 's/#.*//' -e 's/^[^:]*://' "$1")
for name in $files; do
  path=$(find_file "$name")
  copy "$path"
  # a path in each line that has one: of a library, or of the loader
  libraries=$(ldd "$path" 2>/dev/null | grep -o '/[^ ]*') || continue
  for library in $libraries; do copy "$library"; done
done

# mount points, and writable folders
for folder in dev proc sys run run/lock/lvm run/udev etc/lvm tmp var/cache/denolith var/lib/kubelet; do
  mkdir -p "$out/$folder"
done
ln -s ../run "$out/var/run"
chmod 1777 "$out/tmp"
ldconfig -r "$out"
rm -rf "$out/var/cache/ldconfig"

mkdir -p "$out/var/lib/dpkg"
for package in $(sort -u "$packages"); do
  mkdir -p "$out/usr/share/doc/$package"
  cp -L "/usr/share/doc/$package/copyright" "$out/usr/share/doc/$package/copyright"
  dpkg-query --status "$package"
  echo
done >"$out/var/lib/dpkg/status"
