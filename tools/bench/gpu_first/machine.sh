# What the machine has: NVIDIA's libraries, a GPU, what can be said of both. Sourced by run.sh.
# shellcheck shell=bash disable=SC2154

# The folder of a shared library: the loader's, CUDA's, one of pip's, any.
folder_of() {  # file name
  local found
  found=$(ldconfig -p 2>/dev/null | awk -v name="$1" '$1 == name {print $NF; exit}')
  [ -n "$found" ] || found=$(compgen -G "/usr/local/cuda*/lib*/$1" | head -n 1)
  [ -n "$found" ] || found=$(compgen -G "$(python3 -c 'import sysconfig
print(sysconfig.get_path("purelib"))' 2>/dev/null)/nvidia/*/lib/$1" | head -n 1)
  [ -n "$found" ] || found=$(timeout 60 find / -xdev \( -path /proc -o -path /sys -o -path "$here" \) \
    -prune -o -name "$1" -print -quit 2>/dev/null)
  [ -z "$found" ] || dirname "$found"
}

# Lets the loader find cuDNN, cuBLAS and NVRTC wherever they are.
find_cuda() {
  local name folder major
  major=$(cat "$here/cuda_major")
  for name in libcudnn.so.9 "libcublas.so.$major" "libnvrtc.so.$major"; do
    folder=$(folder_of "$name")
    record library "$name" "${folder:-not found}"
    [ -z "$folder" ] || LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  done
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
}

# "": one can be used. A GPU that is there and cannot be used is a failure, not a skip, and so are
# tests that do not start.
why_no_gpu() {
  local words status=0
  words=$("$tests" --list-test-cases 2>&1) || status=$?
  [ "$status" != 0 ] || return 0
  if [ "$status" != 77 ]; then
    words="test_cuda_device ends with exit code $status: $(head -n 1 <<<"$words")"
    record failed "device tests" "$words"
  fi
  words=${words#"[skipped] all: "}
  words=${words%%$'\n'*}
  ! nvidia-smi -L >/dev/null 2>&1 || record failed machine "a GPU is there: $words"
  echo "$words"
}

# Versions, and one step with all that is said of it.
section_versions() {
  local status=0
  {
    uname -a
    ldd --version | head -n 1
    nvidia-smi || echo "no nvidia-smi"
    "$ada" --version
    grep '^library' "$results"
    compute-sanitizer --version || echo "no compute-sanitizer"
    "${ADA_BENCH_PYTHON:-python3}" -c 'import torch; print("PyTorch", torch.__version__)' ||
      echo "no PyTorch"
  } >"$out/logs/versions.log" 2>&1
  record version program "$("$ada" --version | head -n 1)"
  record version gpu "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader \
    2>/dev/null | head -n 1 || true)"
  if [ -n "$why" ]; then
    say "versions: no step: $why"
    record skipped "one step" "$why"
    return
  fi
  limited 90 one_step "$ada" --config "$here/configs/resnet20_cifar.yaml" --output \
    "$out/runs/one_step" --overwrite --no-progress --verbose --set device.kind=cuda \
    "${data[@]}" train.max_steps=1 evaluate.every_epochs=0 || status=$?
  [ "$status" = 0 ] || record failed "one step" "$(words_of "$status" 90)"
  record step status "$status"
}

# The device tests in several processes, each with its share of the test cases.
section_tests() {
  local count share first k pids=()
  count=$("$tests" --test-suite=gpu --count 2>/dev/null | sed -n 's/.*filters: *\([0-9]*\).*/\1/p')
  share=$(((${count:-$parts} + parts - 1) / parts))
  for ((k = 0; k < parts; ++k)); do
    first=$((k * share + 1))
    (cd "$here/tree" && limited 300 "tests_$k" "$tests" --test-suite=gpu --first="$first" \
      --last=$((first + share - 1))) &
    pids+=($!)
  done
  for ((k = 0; k < parts; ++k)); do
    local status=0
    wait "${pids[$k]}" || status=$?
    # doctest counts the cases of all parts in each.
    record test "$k" "$status" "$(sed -n 's/^\[doctest\] \(assertions:.*\) |$/\1/p' \
      "$out/logs/tests_$k.log" | tr -s ' ' | grep . || words_of $status 300)"
    [ "$status" = 0 ] || record failed "device tests, part $k" \
      "$(grep -a -m 1 'TEST CASE:' "$out/logs/tests_$k.log" || words_of $status 300)"
  done
}

# Each tool looks at every kernel, in the suite that under_sanitizer.sh chooses.
section_sanitizer() {
  local tool status
  for tool in memcheck racecheck synccheck; do
    status=0
    (cd "$here/tree" && limited 240 "$tool" tests/cuda/under_sanitizer.sh "$tool" "$tests") ||
      status=$?
    case $status in
      0) record sanitizer "$tool" clean ;;
      77) record skipped "$tool" "$(grep -m 1 '^\[skipped\]' "$out/logs/$tool.log")" ;;
      *)
        record sanitizer "$tool" "$(words_of $status 240)"
        record failed "$tool" "$(grep -a -m 1 'ERROR SUMMARY\|=========' "$out/logs/$tool.log")" ;;
    esac
    say "  $tool: $(words_of $status 240)"
  done
}
