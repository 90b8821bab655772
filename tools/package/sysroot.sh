#!/usr/bin/env bash
# Lays out the libraries that ada-train is built with for another processor, for a cross compiler and
# qemu-user: Debian's packages, from the sources of this machine, unpacked in a folder. Needs no root,
# and leaves this machine's packages as they are.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/package/sysroot.sh FOLDER [ARCHITECTURE]

  FOLDER        where the packages are unpacked; it may not be there yet
  ARCHITECTURE  arm64 (the default) or another one of Debian's
TEXT
}

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  "" | -*) usage >&2; exit 2 ;;
esac
folder=$1
architecture=${2:-arm64}
if [ -e "$folder" ]; then
  echo "sysroot.sh: $folder is there already" >&2
  exit 2
fi
tree=$(dirname "$0")/../..
mapfile -t packages < <("$tree/tools/setup.sh" --list | grep -E -- '-dev$|^doctest')
compiler=$(g++ -dumpversion)

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/apt/lists/partial "$work"/apt/archives/partial "$work"/root/usr/{bin,lib,sbin}
: >"$work/apt/status"
ln -s usr/bin usr/lib usr/sbin "$work/root"

# Like apt-get on a machine of the architecture that has nothing yet.
apt_get() {
  apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
    -o Dir::State="$work/apt" -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt" \
    -o APT::Install-Recommends=false -o APT::Sandbox::User= -o Acquire::Retries=3 "$@" \
    >"$work/log" 2>&1 </dev/null || { tail -n 15 "$work/log" >&2; exit 1; }
}
apt_get update
apt_get -y --download-only install libc6-dev "libstdc++-$compiler-dev" "${packages[@]}"
for package in "$work"/apt/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work/root" --keep-directory-symlink
done

# Links that begin with / lead out of the folder.
find "$work/root" -type l -lname '/*' | while IFS= read -r link; do
  ln -snfr "$work/root$(readlink "$link")" "$link"
done
mv "$work/root" "$folder"
