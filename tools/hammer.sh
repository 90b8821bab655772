#!/usr/bin/env bash
# Kills runs at random moments, fails their system calls, limits what they may have and fills their
# disks; every run is then resumed and compared, byte for byte, with one that nothing happened to.
# Ends with a table (--help).
set -euo pipefail
cd "$(dirname "$0")/.."
program=${ADA_BINARY:-build/ada-train}
[ -x "$program" ] || tools/build.sh --no-tests
exec python3 tools/hammer --program "$program" "$@"
