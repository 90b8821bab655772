#!/usr/bin/env bash
# The steps of the recipes Dockerfile and ada-train.def: from a bare Debian and the source tree to an
# installed program. The tree's package is built here, installed with apt, and what only compiling
# needed goes again. The recipes leave out a build folder that was copied along: CMake takes none of
# another place.
# usage: tools/container/install.sh SOURCE   (as root)
set -euo pipefail
source=$1
export DEBIAN_FRONTEND=noninteractive
cd "$source"
apt-mark showmanual | sort >/tmp/before.txt
tools/setup.sh
tools/build.sh --no-tests
rm -f build/ada-train_*.deb # of another version, which a copied tree may hold
(cd build && cmake --build . --target ada_c_api && cpack -G DEB)
apt-get install -q -y "$source"/build/ada-train_*.deb
apt-mark showmanual | sort | comm -13 /tmp/before.txt - | sed -E '/^(ada-train|python3|dataset-fashion-mnist)$/d' |
  xargs -r apt-mark auto >/dev/null
# Else what any package suggests stays: apt itself suggests dpkg-dev, which recommends a compiler.
apt-get autoremove -q -y --purge -o APT::AutoRemove::SuggestsImportant=false
rm -rf /var/lib/apt/lists/* /tmp/before.txt
ada-train --version
