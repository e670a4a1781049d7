#!/bin/sh
# The last stage of the image, and of its check (check.sh): the package, a user without rights, nothing else.
# usage: install.sh PALIMPSEST.deb HEALTHY.sh
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$1" ca-certificates
install -D -m 755 "$2" /usr/lib/palimpsest/healthy.sh
mkdir -p /models /sessions
chown 10001:10001 /models /sessions
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* "$1" "$2"
