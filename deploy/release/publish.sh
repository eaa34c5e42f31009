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

push() {
  skopeo copy --all "$@" "oci:$folder/$layout:$(tag "$layout")" "docker://$registry/$repository:$(tag "$layout")"
}

for part in image chart; do
  repository=denolith
  [ $part = image ] || repository=charts/denolith
  for layout in $part $part.sig $part.att; do
    [ ! -e "$folder/$layout" ] || push --quiet "$@"
  done
  echo "$registry/$repository:$(tag $part)@$(sed -n "s/.*\"$part\": \"\(.*\)\".*/\1/p" "$folder/digests.json")"
done
