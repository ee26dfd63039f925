#!/bin/sh
# scripts/deps.sh PACKAGE...: install the Debian packages that are missing, and say which.
set -eu
missing=
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
command -v apt-get >/dev/null || { echo "deps: missing$missing, and this machine has no apt-get" >&2; exit 5; }
echo "deps: installing$missing"
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "deps: not root and no sudo; as root: apt-get install$missing" >&2; exit 5; }
    sudo=sudo
fi
$sudo apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
