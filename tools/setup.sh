#!/usr/bin/env bash
# Installs the Debian packages that building, testing, the quickstart and the Python tools need.
# Installs only what is missing, says nothing when nothing is, and touches nothing but packages (and,
# with --cuda, build-cudnn-frontend/).
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
usage: tools/setup.sh [--dev] [--bench] [--hammer] [--fuzz] [--clang] [--aarch64] [--bare] [--mpi] [--cuda]
                      [--list]

Installs what is missing on Debian 12 or 13 (or an Ubuntu with the same packages).
  --dev     also what tools/format.sh and tools/lint.sh use, and Chromium, in which a test opens the
            report
  --bench   also what tools/bench/run.sh --ops uses: Google Benchmark
  --hammer  also what tools/hammer.sh uses: strace
  --fuzz    also what tools/fuzz.sh uses: clang with libFuzzer
  --clang   also what a build with clang takes: clang and its OpenMP
  --aarch64 also what a build for 64-bit ARM takes (tools/package/): a cross compiler and qemu
  --bare    also what makes and checks bare Debian trees: debootstrap, lintian
  --mpi     also Open MPI, for tools/build.sh --mpi: several processes, several machines
  --cuda    also the headers of cudnn-frontend for tools/build.sh --cuda, from PyPI into
            build-cudnn-frontend/; says what of CUDA, cuDNN and, with --mpi, NCCL is missing, but does
            not install those
  --list    print the packages, install nothing
TEXT
}

packages=(
  g++ cmake ninja-build                  # the build
  libyaml-cpp-dev libcli11-dev libspdlog-dev nlohmann-json3-dev zlib1g-dev libxxhash-dev
  libdnnl-dev                            # convolutions on the CPU
  libjpeg62-turbo-dev libpng-dev libwebp-dev   # pictures
  libpugixml-dev                         # annotations of boxes
  doctest-dev                            # the tests
  file dpkg-dev                          # the package: cpack -G DEB
  python3 ca-certificates xz-utils       # data/scripts and the tools
  python3-pandas python3-matplotlib python3-yaml python3-plotly   # tools/report.py
  python3-jsonschema python3-venv        # tests: of the schema; with packages from PyPI
  dataset-fashion-mnist                  # what the quickstart trains on
)
list=false
cuda=false
mpi=false
while [ $# -gt 0 ]; do
  case $1 in
    --dev) packages+=(clang-format clang-tidy shellcheck chromium) ;;
    --bench) packages+=(libbenchmark-dev) ;;
    --hammer) packages+=(strace) ;;
    --fuzz) packages+=(clang libclang-rt-dev) ;;
    --clang) packages+=(clang libomp-dev) ;;
    --aarch64) packages+=(g++-aarch64-linux-gnu qemu-user-static) ;;
    --bare) packages+=(debootstrap lintian) ;;
    --mpi) mpi=true; packages+=(libopenmpi-dev openmpi-bin) ;;
    --cuda) cuda=true ;;
    --list) list=true ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
if $list; then printf '%s\n' "${packages[@]}"; exit 0; fi

die() { printf 'setup.sh: %s\n' "$@" >&2; exit 1; }

# The first folder of the arguments that has the file.
folder_with() {
  local file=$1 folder
  shift
  for folder in "$@"; do
    if [ -e "$folder/$file" ]; then echo "$folder"; return; fi
  done
}

# cudnn-frontend's wheel, unpacked in the folder $1/wheel.
fetch_wheel() {
  python3 -m venv "$1/venv" &&
    "$1/venv/bin/pip" --quiet --disable-pip-version-check download --no-deps \
      --only-binary=:all: --dest "$1" nvidia-cudnn-frontend==1.32.0 >&2 &&
    python3 -m zipfile -e "$1"/*.whl "$1/wheel"
}

# What the CUDA backend is built with, after all else.
setup_cuda() {
  local toolkit frontend=build-cudnn-frontend temporary
  PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null || die "nvcc is missing." \
    "Install NVIDIA's CUDA toolkit, 12.4 or newer: https://developer.nvidia.com/cuda-downloads" \
    "(packages cuda-nvcc, cuda-cudart-dev, libcublas-dev of its repository suffice)."
  toolkit=$(dirname "$(dirname "$(readlink -f "$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)")")")
  [ -n "$(folder_with cudnn.h /usr/include /usr/local/include "$toolkit/include" \
    /usr/include/x86_64-linux-gnu)" ] || die "cuDNN 9 is missing (cudnn.h)." \
    "Install it from NVIDIA's repository: libcudnn9-dev-cuda-13, or -12 with CUDA 12."
  ! $mpi || [ -n "$(folder_with nccl.h /usr/include /usr/local/include "$toolkit/include")" ] ||
    die "NCCL 2.18 or newer is missing (nccl.h), which several processes with a GPU each need." \
      "Install it from NVIDIA's repository: libnccl2 and libnccl-dev."
  [ -z "$(folder_with cudnn_frontend.h /usr/include /usr/local/include "$toolkit/include" \
    "$frontend/include")" ] || return 0
  echo "setup.sh: fetching the headers of cudnn-frontend from PyPI" >&2
  temporary=$(mktemp -d)
  if ! fetch_wheel "$temporary"; then
    rm -rf "$temporary"
    die "cudnn-frontend cannot be fetched (above). By hand: the folder include/ of" \
      "https://github.com/NVIDIA/cudnn-frontend becomes $frontend/include."
  fi
  mkdir -p "$frontend"
  rm -rf "$frontend/include"
  mv "$temporary/wheel/include" "$frontend/include"
  rm -rf "$temporary"
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  die "this is no Debian-like system (no apt-get). Install these yourself, then use tools/build.sh:" \
    "${packages[*]}"
fi

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  if $cuda; then setup_cuda; fi
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "packages are missing, and installing them needs root or sudo:" \
    "as root, run: apt-get install ${missing[*]}"
  as_root=(sudo)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs apt-get, waiting for another package manager and trying again when a mirror hiccups.
apt_get() {
  local attempt
  for attempt in 1 2 3; do
    if "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
      -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" >"$log" 2>&1 </dev/null; then
      return 0
    fi
    [ "$attempt" = 3 ] || sleep $((attempt * 5))
  done
  tail -n 15 "$log" >&2
  return 1
}

echo "setup.sh: installing ${missing[*]}" >&2
apt_get -o APT::Update::Error-Mode=any update ||
  echo "setup.sh: 'apt-get update' failed (above; is the network up?); trying to install anyway" >&2
apt_get install --no-install-recommends "${missing[@]}" ||
  die "'apt-get install' failed (above). Missing: ${missing[*]}"
if $cuda; then setup_cuda; fi
