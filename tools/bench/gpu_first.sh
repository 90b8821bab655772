#!/usr/bin/env bash
# Everything for the first half hour on a GPU in one archive: builds the program and the device tests
# for it, packs them with what they load (all libraries but libc's and NVIDIA's), two batches of
# CIFAR-10, configurations and the CPU's losses, and runs gpu_first/run.sh from the archive unpacked.
# On another machine: unpack it, then gpu_first/run.sh there (--help).
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/common.sh

usage() {
  cat <<'TEXT'
usage: tools/bench/gpu_first.sh [--pack] [--arch N] [--one-batch] [--build FOLDER] [-- RUN_OPTION...]

  (none)          builds, packs, unpacks and runs; without a GPU all that needs one is skipped, visibly
  --pack          builds and packs alone: FOLDER/gpu_first.tar.xz
  --arch N        the GPU to build for (90: H100, H200)
  --one-batch     test images are training images: the archive is 23 MB smaller (done by itself where
                  it would reach 64 MiB)
  --build FOLDER  (build-gpu)
  RUN_OPTION      of gpu_first/run.sh: --only tests,bits --minutes 20
CIFAR-10 is looked for in $ADA_CIFAR10 and data/cifar-10; without it images are made up.
TEXT
}

arch=90 folder=build-gpu pack_only=false one_batch=false
while [ $# -gt 0 ]; do
  case $1 in
    --pack) pack_only=true ;;
    --one-batch) one_batch=true ;;
    --arch) need_value "$1" $#; arch=$2; shift ;;
    --build) need_value "$1" $#; folder=$2; shift ;;
    --) shift; break ;;
    -h | --help) usage; exit 0 ;;
    *) echo "gpu_first.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
packed=$folder/gpu_first archive=$folder/gpu_first.tar.xz
readonly most_mib=64

fail() { echo "gpu_first.sh: $1" >&2; exit 1; }

# Libraries are looked for beside the program, those that libraries need as well (an old RPATH,
# which is theirs too); tests find their recordings where they are started.
# shellcheck disable=SC2016
build() {
  local log=$folder/build.log
  export PATH=$PATH:/usr/local/cuda/bin
  command -v "${CUDACXX:-nvcc}" >/dev/null || fail "nvcc is missing; tools/setup.sh --cuda says what to install"
  mkdir -p "$folder"
  { cmake -S . -B "$folder" -DCMAKE_BUILD_TYPE=Release -DADA_CUDA=ON "-DADA_CUDA_ARCH=$arch" \
      -DADA_MPI=OFF -DADA_TESTED_TREE=. '-DCMAKE_BUILD_RPATH=$ORIGIN/lib' \
      -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags &&
    cmake --build "$folder" --parallel "$(parallel_jobs)" --target ada-train test_cuda_device; } \
    >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "the build failed: $log"; }
}

# Those that a file loads, but for libc's own and NVIDIA's.
libraries_of() {
  ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | grep -vE \
    '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|util|resolv)\.so\.[0-9]+|lib(cuda|cudart|cudnn|cublas|nvrtc|nccl)[^/]*)$'
}

pack_images() {
  local from="" candidate file
  for candidate in "${ADA_CIFAR10:-}" data/cifar-10; do
    [ -n "$from" ] || ! compgen -G "$candidate/data_batch_1.bin*" >/dev/null || from=$candidate
  done
  [ -n "$from" ] || { echo "gpu_first.sh: no CIFAR-10: images are made up" >&2; return; }
  mkdir -p "$packed/cifar-10"
  for file in data_batch_1.bin test_batch.bin; do
    $one_batch && [ $file = test_batch.bin ] && continue
    if [ -f "$from/$file" ]; then cp "$from/$file" "$packed/cifar-10/"
    else xz -dc "$from/$file.xz" >"$packed/cifar-10/$file"; fi
  done
  # The program reads five training batches and one for tests.
  for file in data_batch_2.bin data_batch_3.bin data_batch_4.bin data_batch_5.bin test_batch.bin; do
    [ -f "$packed/cifar-10/$file" ] || ln "$packed/cifar-10/data_batch_1.bin" "$packed/cifar-10/$file"
  done
}

# The text, and some pictures of BCCD and CamVid, where they are found.
pack_data() {
  local root set name split
  mkdir -p "$packed/data"
  ln -s ../cifar-10 "$packed/data/cifar-10"
  for root in "${ADA_DATA:-}" data; do
    [ -d "$root/jargon" ] && cp -r "$root/jargon" "$packed/data"
    if [ -d "$root/bccd" ]; then
      for split in train val test; do
        set=ImageSets/Main/$split.txt
        mkdir -p "$packed/data/bccd"/{ImageSets/Main,Annotations,JPEGImages}
        sed 12q "$root/bccd/$set" >"$packed/data/bccd/$set"
        while read -r name _; do
          cp "$root/bccd/Annotations/$name.xml" "$packed/data/bccd/Annotations"
          cp "$root/bccd/JPEGImages/$name.jpg" "$packed/data/bccd/JPEGImages"
        done <"$packed/data/bccd/$set"
      done
    fi
    for split in "$root"/camvid/*; do
      [ -d "$split" ] || continue
      mkdir -p "$packed/data/camvid/${split##*/}"
      find "$split" -type f | sort | sed -n 1,12p |
        xargs -r cp -t "$packed/data/camvid/${split##*/}"
    done
  done
}

pack() {
  local program
  rm -rf "$packed"
  mkdir -p "$packed/lib" "$packed/configs" "$packed/torch" "$packed/tree/tests/golden" \
    "$packed/tree/tests/cuda" "$packed/gpu_first"
  for program in "$folder/ada-train" "$(find "$folder" -name test_cuda_device -type f)"; do
    libraries_of "$program" | xargs -r cp -Lt "$packed/lib"
    strip -o "$packed/${program##*/}" "$program"
  done
  cp configs/{resnet20_cifar,vit_cifar,gpt2_jargon,resnet50_synthetic}.yaml configs/*_quick*.yaml \
    configs/sweep/operands_*.yaml "$packed/configs"
  cp tools/bench/torch_*.py "$packed/torch"
  cp -r tests/golden/adaptive tests/golden/steps "$packed/tree/tests/golden"
  cp tests/cuda/under_sanitizer.sh "$packed/tree/tests/cuda"
  cp tools/bench/gpu_first/*.sh tools/bench/gpu_first/*.awk "$packed/gpu_first"
  mv "$packed/gpu_first/run.sh" "$packed"
  "${CUDACXX:-nvcc}" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p' >"$packed/cuda_major"
  pack_images
  pack_data
  local losses=("$packed/ada-train" --config configs/resnet20_cifar.yaml --output "$folder/cpu_losses"
    --overwrite --no-progress --quiet --set device.kind=cpu train.max_steps=20 log.every=1
    evaluate.every_epochs=0 "checkpoint={every_epochs: 0}")
  if [ -d "$packed/cifar-10" ]; then
    "${losses[@]}" data.path="$packed/cifar-10"
    cp "$folder/cpu_losses/steps.csv" "$packed/cpu_steps.csv"
  fi
}

# Smaller than most_mib: with one batch where two are too many.
archive() {
  local mib
  # The dictionary reaches from one program to the other, which hold the same kernels.
  tar -C "$folder" -cf - gpu_first | xz -T1 --lzma2=preset=6,dict=192MiB >"$archive"
  mib=$((($(stat -c %s "$archive") + 1048575) / 1048576))
  echo "gpu_first.sh: $archive: $mib MiB"
  [ "$mib" -ge $most_mib ] || return 0
  $one_batch && fail "the archive is to be smaller than $most_mib MiB"
  echo "gpu_first.sh: that is too much: test images are training images (--one-batch)"
  one_batch=true
  ln -f "$packed/cifar-10/data_batch_1.bin" "$packed/cifar-10/test_batch.bin"
  archive
}

build
pack
archive
$pack_only && exit 0
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
tar -C "$bare" -xf "$archive"
"$bare/gpu_first/run.sh" --out "$folder/gpu_first_results" "$@"
