#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests (those on a GPU with --cuda alone). Ends with
# the line "N passed, N failed"; before it: what failed or was skipped, and where the time went.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

usage() {
  cat <<'TEXT'
usage: tools/test.sh [--fast|--all|--install] [--debug|--asan|--ubsan|--tsan|--sanitizers] [--mpi]
                     [--part N] [--cuda [--cuda-arch ARCH]] [--only REGEX] [--no-setup]

  (none)       what finds faults within minutes: the suites cpu and lint
  --all        the slow suites as well: kill -9 and failing system calls, thousands of random
               configurations, longer trainings (half as long again); what CI runs
  --install    only what CI leaves out: fuzzing and the cpu suites with clang, the program for 64-bit
               ARM, the wheel, and package, wheel and container recipe on a bare Debian 12 and 13
               (root; hours)
  --fast       the cpu suites only
  --asan ...   the same under a sanitizer, in a build folder of its own; --asan --ubsan: under both
  --sanitizers the same twice, under --asan --ubsan and then under --tsan; ends with a line of each.
               With --all the whole tree: hours
  --part N     of --sanitizers: one of ten parts of at most two hours each on two cores, 1 to 5 under
               --asan --ubsan and 6 to 10 under --tsan
  --mpi        with MPI, and the tests that mpirun starts (skipped without it)
  --cuda       with the CUDA backend, and its tests on a GPU (skipped where there is none)
  --cuda-arch ARCH  as tools/build.sh takes it: for one GPU alone, the quickest build
  --only REGEX CTest's tests whose names match (ctest -R), of the suites that were chosen
  --no-setup   installs nothing
All output is in the build folder's test.log. CIFAR-10 is taken from $ADA_CIFAR10 or data/cifar-10;
tests that need it are skipped, and say so, where it is missing.
TEXT
}

folder=build
preset=release
build=()
packages=()
select=(-L '^(cpu|lint|gpu|mpi)$')
only=()
all=false
sanitizers=false
setup=true
part=
share=()  # of the tests: which, of how many
others=() # of --sanitizers: what holds for each of the two
while [ $# -gt 0 ]; do
  option=$1
  case $option in --sanitizers | --part) ;; *) others+=("$option") ;; esac
  case $option in
    --fast) select=(-L '^cpu$') ;;
    --all) select=(-LE '^install$'); all=true; packages+=(--hammer) ;;
    --install)
      select=(-L '^install$')
      all=true
      packages+=(--fuzz --clang --aarch64 --bare)
      ;;
    --debug | --asan | --ubsan | --tsan)
      build+=("$option")
      preset=$(preset_with "$preset" "$option")
      folder=build-$preset
      ;;
    --mpi) build+=(--mpi); packages+=(--mpi) ;;
    --cuda) build+=(--cuda); packages+=(--cuda) ;;
    --cuda-arch) need_value "$option" $#; build+=("$option" "$2"); others+=("$2"); shift ;;
    --only) need_value "$option" $#; only=(-R "$2"); others+=("$2"); shift ;;
    --sanitizers) sanitizers=true ;;
    --part) need_value "$option" $#; part=$2; shift ;;
    --share) need_value "$option" $#; share=("$2" 5); others+=("$2"); shift ;; # what --part asks for
    --no-setup) setup=false ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown option '$option'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

if $sanitizers; then
  if [ "$preset" != release ]; then
    echo "test.sh: --$preset does not go with --sanitizers (--help)" >&2
    exit 2
  fi
  status=0
  ends=()
  kinds=("--asan --ubsan" --tsan)
  case $part in
    "") ;;
    [1-5]) kinds=("--asan --ubsan --share $part") ;;
    [6-9] | 10) kinds=("--tsan --share $((part - 5))") ;;
    *) echo "test.sh: --part takes 1 to 10 (--help)" >&2; exit 2 ;;
  esac
  for kind in "${kinds[@]}"; do
    end=$(mktemp)
    # shellcheck disable=SC2086 # several options
    tools/test.sh "${others[@]}" $kind | tee "$end" || status=1
    ends+=("$kind: $(tail -n 1 "$end")")
    rm "$end"
  done
  printf '%s\n' "${ends[@]}"
  exit "$status"
fi

if [ -n "$part" ]; then
  echo "test.sh: --part goes with --sanitizers (--help)" >&2
  exit 2
fi

SECONDS=0 # what bash counts from here on
if $setup; then tools/setup.sh "${packages[@]}"; fi
installed=$SECONDS
tools/build.sh "${build[@]}"
built=$SECONDS

if [ ${#share[@]} -gt 0 ]; then
  only=(-R "$(ctest --test-dir "$folder" --show-only=json-v1 "${select[@]}" "${only[@]}" |
    python3 tools/test_share.py "${share[@]}")")
fi
run=(ctest --test-dir "$folder" --verbose --parallel "$(parallel_jobs)" "${select[@]}" "${only[@]}")
# ThreadSanitizer of g++ 12 cannot live with the address randomization of newer kernels.
if [ "$folder" = build-tsan ] && setarch -R true 2>/dev/null; then run=(setarch -R "${run[@]}"); fi

status=0
"${run[@]}" 2>&1 | tee "$folder/test.log" | progress_line '^ *[0-9]+/[0-9]+ Test ' || status=$?
$all || echo "not run: the slow suites (tools/test.sh --all)"
echo "seconds: $installed to install what was missing, $((built - installed)) to build," \
  "$((SECONDS - built)) to test"
python3 tools/test_summary.py "$folder/test.log" || status=1
exit "$status"
