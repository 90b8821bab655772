#!/usr/bin/env bash
# The first half hour on a GPU, from the archive that gpu_first.sh packs: what it finds is in
# results.tsv at once and on one page, verdicts.md, after every section, so that it can be cut off at
# any minute. Needs no network and installs nothing; PyTorch and compute-sanitizer are used where
# they are found.
#
# usage: run.sh [--out FOLDER] [--only SECTION,...] [--minutes N] [--parts N] [--brief]
#   --out       results, logs and runs (./gpu_first_results)
#   --only      of: versions, tests, bits, networks, times, sanitizer (all, in this order)
#   --minutes   no section begins later (60)
#   --parts     processes that share the device tests (8)
#   --brief     times of the defaults and PyTorch alone
# Exit status: 0: nothing failed, or there is no GPU and all was skipped; 1: verdicts.md has what did.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=gpu_first_results only=versions,tests,bits,networks,times,sanitizer minutes=60 parts=8 brief=false
while [ $# -gt 0 ]; do
  case $1 in
    --out | --only | --minutes | --parts)
      [ $# -ge 2 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
      declare "${1#--}=$2"; shift ;;
    --brief) brief=true ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option '$1' (--help)" >&2; exit 2 ;;
  esac
  shift
done
mkdir -p "$out/logs" "$out/runs" && out=$(cd "$out" && pwd) || exit 6
results=$out/results.tsv
: >"$results"
# shellcheck disable=SC2034
ada=$here/ada-train tests=$here/test_cuda_device
export ADA_CACHE_DIR=$out/plans
# shellcheck source=tools/bench/gpu_first/machine.sh
. "$here/gpu_first/machine.sh"
# shellcheck source=tools/bench/gpu_first/measure.sh
. "$here/gpu_first/measure.sh"
# shellcheck source=tools/bench/gpu_first/networks.sh
. "$here/gpu_first/networks.sh"

record() { local IFS=$'\t'; echo "$*" >>"$results"; }
say() { printf '%4ds  %s\n' "$SECONDS" "$*"; }
# Runs a command for so many seconds at the most; its words go to a log of its own.
limited() {  # seconds, log, command ...
  local seconds=$1 log=$out/logs/$2.log
  shift 2
  timeout -k 5 "$seconds" "$@" >"$log" 2>&1
}
# What timeout's status and others mean.
words_of() {  # status, seconds
  case $1 in 124 | 137) echo "cut off after $2 s" ;; *) echo "exit code $1" ;; esac
}
verdicts() { awk -f "$here/gpu_first/verdicts.awk" "$results" >"$out/verdicts.md"; }

find_cuda
why=$(why_no_gpu)
for section in versions tests bits networks times sanitizer; do
  case ",$only," in *",$section,"*) ;; *) continue ;; esac
  if [ -n "$why" ] && [ "$section" != versions ]; then
    say "$section: skipped: $why"
    record skipped "$section" "$why"
  elif [ "$SECONDS" -ge $((minutes * 60)) ]; then
    say "$section: skipped: $minutes minutes are over (--minutes)"
    record skipped "$section" "$minutes minutes are over"
  else
    say "$section"
    "section_$section"
  fi
  verdicts
done
say "end: $out/verdicts.md"
cat "$out/verdicts.md"
! grep -q '^failed' "$results"
