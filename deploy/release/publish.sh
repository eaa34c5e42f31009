#!/bin/sh
# Publishes the image, the chart and their signatures of a release in a registry, and prints their names with digests. The files
# of the release go to the address of its downloads by other means.
#   deploy/release/publish.sh FOLDER REGISTRY [FLAGS OF skopeo copy]
set -eu
if [ $# -lt 2 ]; then
  echo "usage: publish.sh FOLDER REGISTRY [FLAGS OF skopeo copy]" >&2
  exit 2
fi
folder=$1 registry=$2
shift 2

# The tag of the only entry of a layout.
tag() {
  sed -n 's/.*"org.opencontainers.image.ref.name":"\([^"]*\)".*/\1/p' "$folder/$1/index.json"
}

# The name of a layout's only entry, as skopeo takes it.
name() {
  echo "oci:$folder/$1:$(tag "$1")"
}

push() {
  skopeo copy --all "$@" "$(name "$layout")" "docker://$registry/$repository:$(tag "$layout")"
}

# The digest of a part. SHA256SUMS covers it, but not the layouts.
digest() {
  sed -n "s/.*\"$1\": \"\(.*\)\".*/\1/p" "$folder/digests.json"
}

# skopeo checks all that a layout's entry names, but not the entry.
for part in image chart; do
  if [ "sha256:$(skopeo inspect --raw "$(name $part)" | sha256sum)" != "$(digest $part)  -" ]; then
    echo "publish.sh: $folder/$part is not that of digests.json" >&2
    exit 1
  fi
done

for part in image chart; do
  repository=denolith
  [ $part = image ] || repository=charts/denolith
  for layout in $part $part.sig $part.att; do
    [ ! -e "$folder/$layout" ] || push --quiet "$@"
  done
  echo "$registry/$repository:$(tag $part)@$(digest $part)"
done
