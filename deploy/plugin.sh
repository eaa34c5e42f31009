#!/bin/sh
# kubectl denolith @VERSION@: starts the plugin by Deno, both beside this file. A link to this file, as krew makes it, is followed.
set -eu
file=$0
while [ -L "$file" ]; do
  target=$(readlink "$file")
  case $target in
  /*) file=$target ;;
  *) file=$(dirname "$file")/$target ;;
  esac
done
folder=$(CDPATH='' cd -P "$(dirname "$file")" && pwd)
export @ENV@
exec "$folder/deno" @FLAGS@ -P=@SET@ --config "$folder/deno.json" "$folder/@MODULE@" "$@"
