#!/usr/bin/env bash
# Configures and builds ada-train and its tests with CMake. Installs nothing (tools/setup.sh does).
# Quiet when all is well; the compiler's words are in the build folder's build.log.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

usage() {
  cat <<'TEXT'
usage: tools/build.sh [--debug|--asan|--ubsan|--tsan] [--tests|--no-tests]
                      [--mpi] [--cuda [--cuda-arch ARCH]]

  (none)       Release, in build/: the program is build/ada-train
  --debug      without optimisation, in build-debug/
  --asan       with AddressSanitizer, in build-asan/ (likewise --ubsan, --tsan); --asan --ubsan:
               with both, in build-asan-ubsan/
  --no-tests   only the program and the library of the Python package; --tests (the default): the test programs as well
  --mpi        with MPI: mpirun and srun start several processes that train one network together;
               started alone the program is what it is without
  --cuda       the CUDA backend as well, for sm_75 to sm_90 and, as PTX, newer ones (Release only);
               the program still runs on the CPU where there is no GPU
  --cuda-arch ARCH  for this GPU alone: 80, 90, ... (CMake's words; the quickest build)
Environment: ADA_JOBS, the number of parallel compilers (default: by cores and memory).
TEXT
}

preset=release
targets=(all)
cuda=OFF
mpi=OFF
arch=
while [ $# -gt 0 ]; do
  option=$1
  case $option in
    --debug | --asan | --ubsan | --tsan) preset=$(preset_with "$preset" "$option") ;;
    --tests) targets=(all) ;;
    --no-tests) targets=(ada-train ada_c_api) ;;
    --mpi) mpi=ON ;;
    --cuda) cuda=ON ;;
    --cuda-arch) need_value "$option" $#; arch=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "build.sh: unknown option '$option'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
if [ $cuda = ON ] && [ "$preset" != release ]; then
  echo "build.sh: --cuda goes with the Release build alone" >&2
  exit 2
fi
if [ -n "$arch" ] && [ $cuda = OFF ]; then
  echo "build.sh: --cuda-arch says for which GPU --cuda builds; add --cuda" >&2
  exit 2
fi
if ! command -v cmake >/dev/null; then
  echo "build.sh: cmake is missing; run tools/setup.sh first" >&2
  exit 1
fi

folder=build
[ "$preset" = release ] || folder=build-$preset
mkdir -p "$folder"
log=$folder/build.log
exec 9>"$folder/.lock"
if ! flock -n 9; then
  echo "build.sh: another build of $folder/ is going on; waiting for it" >&2
  flock 9
fi

configure=(cmake --preset "$preset")
# A new folder, or one that was configured for a tree that has since been moved or copied.
if ! grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$folder/CMakeCache.txt"; then
  configure+=(--fresh)
  if command -v ninja >/dev/null; then configure+=(-G Ninja); else configure+=(-G "Unix Makefiles"); fi
  if command -v ccache >/dev/null; then
    # Precompiled headers are kept only so.
    configure+=("-DCMAKE_CXX_COMPILER_LAUNCHER=cmake;-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache")
  fi
fi

configure+=("-DADA_CUDA=$cuda" "-DADA_MPI=$mpi")
if [ $mpi = ON ] && ! command -v mpicxx >/dev/null; then
  echo "build.sh: MPI is missing; tools/setup.sh --mpi installs it" >&2
  exit 1
fi
if [ $cuda = ON ]; then
  export PATH=$PATH:/usr/local/cuda/bin
  if ! command -v "${CUDACXX:-nvcc}" >/dev/null; then
    echo "build.sh: nvcc is missing; tools/setup.sh --cuda says what to install" >&2
    exit 1
  fi
  if [ -n "$arch" ]; then configure+=("-DADA_CUDA_ARCH=$arch"); else configure+=(-U ADA_CUDA_ARCH); fi
fi

fail() {
  echo "build.sh: $1 failed; the end of $log:" >&2
  grep -nE -m 5 '(error|Error)[: ]' "$log" >&2 || true
  tail -n 40 "$log" >&2
  exit 1
}

"${configure[@]}" >"$log" 2>&1 9>&- || fail "configuring"
cmake --build "$folder" --parallel "$(parallel_jobs)" --target "${targets[@]}" 9>&- 2>&1 |
  tee -a "$log" | progress_line '^\[' || fail "compiling"
if grep -q 'warning:' "$log"; then
  echo "build.sh: $(grep -c 'warning:' "$log") compiler warnings, in $log" >&2
fi
