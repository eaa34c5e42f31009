#!/bin/sh
# denolith @VERSION@ for Linux on @ARCH@, in one file: this script, and after it the driver, its permissions, and the Deno
# runtime. The first start unpacks them into the cache; each later one starts them there at once. Under the name kubectl-denolith,
# as kubectl finds plugins, it starts the plugin, with a permission set of its own; so do its subcommands.
set -uf
app=denolith-@KEY@
user=
case ${0##*/}/${1:-} in
kubectl-denolith/* | @PLUGIN_SUBCOMMANDS@) set=@PLUGIN_SET@ module=@PLUGIN_MODULE@ ;;
*) set=@SET@ module=@MODULE@ ;;
esac

fail() {
  echo "denolith: $*" >&2
  exit 1
}

# The first that there is: the named one, systemd's, the system's where this user may write, this user's own.
if [ -n "${DENOLITH_CACHE:-}" ]; then
  cache=$DENOLITH_CACHE
elif [ -n "${CACHE_DIRECTORY:-}" ]; then
  cache=${CACHE_DIRECTORY%%:*}
elif [ -w /var/cache/denolith ] || { [ -w /var/cache ] && [ ! -e /var/cache/denolith ]; }; then
  cache=/var/cache/denolith
elif [ -n "${XDG_CACHE_HOME:-}" ]; then
  cache=$XDG_CACHE_HOME/denolith
elif [ -n "${HOME:-}" ]; then
  cache=$HOME/.cache/denolith
else
  fail "there is no folder to unpack into: set DENOLITH_CACHE to one that is yours"
fi
case $cache in
/*) ;;
*) fail "unpack into $cache: the folder's path must begin with a slash" ;;
esac

# Whether the folder has all files, in their sizes: a cleaner of caches may have removed some, a crash cut them short.
is_whole() {
  [ -d "$cache/$app/deno_dir" ] &&
    [ "$(cd -- "$cache/$app" && stat -L -c %s main.js worker.js @PLUGIN_MODULE@ deno.json deno 2>/dev/null)" = "@SIZES@" ]
}

# Fails unless root and this user are the only ones who can change these files, their folders, or put others in their place.
refuse_strangers() {
  path=$cache
  while [ -n "$path" ]; do
    set -- "$@" "$path"
    path=${path%/*}
  done
  seen=$(stat -c '%A %u %n' -- "$@" /) || fail "read the owner of $cache: stat failed"
  IFS='
'
  for line in $seen; do
    mode=${line%% *} line=${line#* }
    owner=${line%% *} name=${line#* }
    [ "$owner" = 0 ] || [ "$owner" = "${user:=$(id -u)}" ] ||
      fail "$name belongs to user $owner, who could change what is started: set DENOLITH_CACHE to another folder"
    case $mode:$name in
    [d-]????-??-?:*) continue ;;
    # With the sticky bit, as in /tmp, other users can add files but cannot replace this user's.
    d????????[tT]:*) [ "$name" = "$cache" ] || [ "$name" = "$cache/$app" ] || continue ;;
    esac
    fail "$name ($mode) can be changed by other users: take that from them, or set DENOLITH_CACHE to another folder"
  done
  unset IFS
}

# Unpacks the payload: it is unpacked beside its place, checked, synced, and renamed.
unpack() {
  [ "$(uname -m)" = "@ARCH@" ] || fail "this file is for @ARCH@, the machine is $(uname -m)"
  mask=$(umask)
  umask 022
  new=$(mktemp -d "$cache/denolith-new.XXXXXXXXXX") || fail "unpack into $cache: it cannot be written"
  trap 'rm -rf -- "$new"' EXIT
  trap 'trap - EXIT TERM; rm -rf -- "$new"; kill -TERM $$' HUP INT TERM
  {
    head -c @MAIN_END@ -- "$0" | tail -c @MAIN_BYTES@ >"$new/main.js" &&
      head -c @WORKER_END@ -- "$0" | tail -c @WORKER_BYTES@ >"$new/worker.js" &&
      head -c @PLUGIN_END@ -- "$0" | tail -c @PLUGIN_BYTES@ >"$new/@PLUGIN_MODULE@" &&
      head -c @CONFIG_END@ -- "$0" | tail -c @CONFIG_BYTES@ >"$new/deno.json" &&
      dd if="$0" of="$new/deno" bs=@BLOCK_BYTES@ skip=@RUNTIME_BLOCK@ status=none
  } || fail "unpack into $cache: it could not be written whole"
  (cd -- "$new" && printf '%s\n' '@SUMS@' | sha256sum -c - >/dev/null 2>&1) ||
    fail "$0 is damaged: what it carries is not what was put in; get it again"
  chmod 755 -- "$new" "$new/deno"
  # Deno's caches hold compiled code, so only this user may read and write them, whatever the umask.
  mkdir -m 700 -- "$new/deno_dir" || fail "unpack into $cache: mkdir failed"
  sync -- "$new/main.js" "$new/worker.js" "$new/@PLUGIN_MODULE@" "$new/deno.json" "$new/deno" "$new" || fail "unpack into $cache: sync failed"
  # Another start may have been quicker, with the same files. What is there otherwise is not whole, and makes way.
  mv -T -- "$new" "$cache/$app" 2>/dev/null || is_whole || {
    mv -T -- "$cache/$app" "$new/old" && mv -T -- "$new" "$cache/$app" && new=$cache/$app/old
  } || fail "unpack into $cache: mv failed"
  rm -rf -- "$new"
  # Left by earlier versions, which unpack again if they are still started, and by starts that were killed. A folder of
  # such a name that has anything else is not the driver's.
  hex='[0-9a-f][0-9a-f][0-9a-f][0-9a-f]' hex=$hex$hex$hex$hex
  find "$cache" -mindepth 1 -maxdepth 1 -type d -mmin +60 ! -name "$app" \
    \( -name "denolith-$hex$hex" -o -name 'denolith-new.??????????' \) -exec sh -c '
      others=$(find "$1" -mindepth 1 -maxdepth 1 ! -name main.js ! -name worker.js ! -name @PLUGIN_MODULE@ \
        ! -name deno.json ! -name deno ! -name deno_dir ! -name old) && [ -z "$others" ] && rm -rf -- "$1"' sh {} \; || :
  trap - EXIT HUP INT TERM
  umask "$mask"
}

[ -d "$cache" ] || (umask 022 && mkdir -p -- "$cache") || fail "there is no folder $cache, and it cannot be made"
cache=$(cd -P -- "$cache" && pwd) || fail "$cache cannot be entered"
is_whole || {
  refuse_strangers
  unpack
}
refuse_strangers "$cache/$app/main.js" "$cache/$app/worker.js" "$cache/$app/@PLUGIN_MODULE@" "$cache/$app/deno.json" \
  "$cache/$app/deno" "$cache/$app/deno_dir" "$cache/$app"
[ -x "$cache/$app/deno" ] || fail "start from $cache: the kernel allows no program there, as where it is mounted noexec: set DENOLITH_CACHE to another folder"
export DENO_DIR="$cache/$app/deno_dir" @ENV@
exec "$cache/$app/deno" @FLAGS@ "-P=$set" \
  --config "$cache/$app/deno.json" "$cache/$app/$module" "$@"
