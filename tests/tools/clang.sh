#!/usr/bin/env bash
# Builds the whole tree with clang, without a warning, in build-clang/, and runs the cpu suites there.
# Exit status 77: skipped, where clang or what it takes is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/common.sh

folder=build-clang
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#include <omp.h>\nint main() { omp_set_num_threads(1); }\n' >"$work/probe.cpp"
if ! clang++ -std=c++20 -fopenmp "$work/probe.cpp" -o "$work/probe" 2>/dev/null; then
  echo "clang.sh: skipped: clang++ with OpenMP is missing; tools/setup.sh --clang installs it" >&2
  exit 77
fi

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S . -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Release \
  "${launcher[@]}" >"$work/configure.log" 2>&1 || { tail -n 20 "$work/configure.log"; exit 1; }
cmake --build "$folder" --parallel "$(parallel_jobs)" >"$work/build.log" 2>&1 ||
  { grep -n -m 20 'error:' "$work/build.log"; tail -n 40 "$work/build.log"; exit 1; }
if grep 'warning:' "$work/build.log"; then exit 1; fi
ctest --test-dir "$folder" -L '^cpu$' --output-on-failure --parallel "$(parallel_jobs)"
