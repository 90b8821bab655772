#!/usr/bin/env bash
# Feeds the readers of this program with inputs that libFuzzer makes, under AddressSanitizer and
# UndefinedBehaviorSanitizer, and ends with a table.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

usage() {
  cat <<'TEXT'
usage: tools/fuzz.sh [--seconds N] [--jobs N] [--no-setup] [TARGET...]

  --seconds N  time for each target (default: 60)
  --jobs N     targets that run side by side (default: one a core)
  --no-setup   installs nothing; exit status 77 where clang++ with libFuzzer is missing
Without TARGET all of them: yaml safetensors checkpoint summary idx cifar csv rows watch study
replay jpeg png webp npz tokens annotation label_image names detections. An input that crashes,
takes ten seconds or 2 GB is kept in build-fuzz/found/, and the exit status is 1; one that takes a second is kept there as well. What
was learnt stays in build-fuzz/corpus/: a later run goes on from there.
TEXT
}

seconds=60
jobs=$(parallel_jobs)
setup=true
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) need_value "$1" $#; seconds=$2; shift ;;
    --jobs) need_value "$1" $#; jobs=$2; shift ;;
    --no-setup) setup=false ;;
    -h | --help) usage; exit 0 ;;
    -*) echo "fuzz.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done
all=(yaml safetensors checkpoint summary idx cifar csv rows watch study replay jpeg png webp npz tokens
     annotation label_image names detections)
if [ ${#targets[@]} -eq 0 ]; then targets=("${all[@]}"); fi
for target in "${targets[@]}"; do
  case " ${all[*]} " in
    *" $target "*) ;;
    *) echo "fuzz.sh: no target '$target'; these exist: ${all[*]}" >&2; exit 2 ;;
  esac
done
for number in "$seconds" "$jobs"; do
  case $number in
    '' | *[!0-9]* | 0*) echo "fuzz.sh: expected a whole number from 1 on, got '$number'" >&2; exit 2 ;;
  esac
done

if $setup; then tools/setup.sh --fuzz; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' \
  >"$work/probe.cpp"
if ! clang++ -fsanitize=fuzzer "$work/probe.cpp" -o "$work/probe" 2>/dev/null; then
  echo "fuzz.sh: skipped: clang++ with libFuzzer is missing; tools/setup.sh --fuzz installs it" >&2
  exit 77
fi

folder=build-fuzz
program=${ADA_BINARY:-build/ada-train}  # a run of it makes seeds
[ -x "$program" ] || tools/build.sh --no-tests
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
[ -e "$folder/build.ninja" ] || cmake -S . -B "$folder" -G Ninja -DADA_FUZZ=ON "${launcher[@]}" \
  -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$work/configure.log" 2>&1 ||
  { tail -n 20 "$work/configure.log" >&2; exit 1; }
cmake --build "$folder" --target fuzz --parallel "$(parallel_jobs)" >"$work/build.log" 2>&1 ||
  { tail -n 40 "$work/build.log" >&2; exit 1; }
python3 tests/fuzz/seeds.py "$program" "$folder/seeds"

# One target; its log goes to $folder/<target>.log.
fuzz_one() {
  local target=$1 bytes=8192
  if [ "$target" = names ]; then bytes=192; fi # each name asks the system for files
  mkdir -p "$folder/corpus/$target" "$folder/found"
  ADA_FUZZ_TARGET=$target UBSAN_OPTIONS=print_stacktrace=1 \
    ASAN_OPTIONS=malloc_context_size=4:max_malloc_fill_size=0:quarantine_size_mb=16 "$folder/fuzz" \
    "$folder/corpus/$target" "$folder/seeds/$target" \
    -max_total_time="$seconds" -max_len="$bytes" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$folder/found/$target-" -report_slow_units=1 -print_final_stats=1 >"$folder/$target.log" 2>&1
}

running=0
declare -A status pid
for target in "${targets[@]}"; do
  if [ "$running" -ge "$jobs" ]; then wait -n || true; running=$((running - 1)); fi
  fuzz_one "$target" &
  pid[$target]=$!
  running=$((running + 1))
done
failed=0
for target in "${targets[@]}"; do
  status[$target]=0
  wait "${pid[$target]}" || status[$target]=$?
done

# The last number of a libFuzzer log's lines "stat::NAME: NUMBER".
stat_of() { sed -n "s/^stat::$2: *//p" "$folder/$1.log" | tail -n 1; }
printf '%-12s %12s %10s %8s %8s  %s\n' target inputs inputs/s MiB edges result
total=0
for target in "${targets[@]}"; do
  inputs=$(stat_of "$target" number_of_executed_units)
  edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$folder/$target.log" | tail -n 1)
  result=ok
  if [ "${status[$target]}" -ne 0 ]; then
    result="FAILED: $folder/$target.log"
    failed=1
  fi
  printf '%-12s %12s %10s %8s %8s  %s\n' "$target" "${inputs:--}" \
    "$(stat_of "$target" average_exec_per_sec)" "$(stat_of "$target" peak_rss_mb)" \
    "${edges:--}" "$result"
  total=$((total + ${inputs:-0}))
done
echo "$total inputs; what was found: $(find "$folder/found" -type f | wc -l) files in $folder/found"
exit "$failed"
