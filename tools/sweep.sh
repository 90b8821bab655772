#!/usr/bin/env bash
# Many runs of ada-train from lists of values, several at a time, with one table at the end. Again:
# finished runs are skipped, interrupted ones go on. The work of one run: sweep/runs.sh; the list of
# runs: sweep/plan.py; the tables: sweep/table.py, in the terminal sweep/show.py.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'TEXT'
usage: tools/sweep.sh --config FILE... --out DIR [--vary KEY=V1,V2,...]... [options]
       tools/sweep.sh --table DIR      only write and show the tables of an existing sweep

  --config FILE...      the base configuration; several are one more thing to vary (also --configs)
  --vary KEY=V1,V2,...  runs for each of the values; commas inside {...}, [...] and quotes do not part
                        them, and further KEY=V words may follow. Each --vary multiplies the runs;
                        keys with `with` between them change together: the first values, the second ...
  --set KEY=VALUE...    for all runs. ada-train gets --set and --vary in the order they stand here
  --out DIR             DIR/NAME/ for each run, DIR/sweep.csv, DIR/sweep_summary.csv, DIR/sweep_logs/;
                        a leading ~ and ${VAR} expand, as in ada-train's own `output`
  -j JOBS               runs at a time (1)
  --threads N           threads of each run (cores / JOBS)
  --dry-run             list the runs as commands on stdout, check their configurations, run nothing
  --slurm FILE          write a Slurm job script of the same runs, one array task each, run nothing
  --tasks N             with --slurm: processes of each run, which srun starts (1); more than one ask
                        for a program with MPI (tools/build.sh --mpi)

At the end a table of the results stands on stdout; all else is said on stderr.
Ctrl-C lets every run write a checkpoint and ends; the same command goes on (a second Ctrl-C does
not wait). Exit code: 0 all runs finished (or were before), 1 some failed, 2 wrong options, 6 what cannot be
written, 129 and more by a signal, as ada-train.
Environment: ADA_TRAIN, the program (build/ada-train of this tree); ADA_PYTHON (python3).

  tools/sweep.sh --config configs/resnet20_cifar_quick.yaml --out runs/policies -j 2 \
    --vary 'scaling={policy: none}' 'scaling={policy: fixed, scale: 128}' 'scaling={policy: adaptive}' \
    --vary precision.format=fp16,fp8_e5m2 --vary seed=1,2,3 --set train.max_steps=200
  tools/sweep.sh --config configs/sweep/*.yaml --out runs/formats --vary precision.format=fp16,bf16
  tools/sweep.sh --config configs/fashion_quickstart.yaml --out runs/both \
    --vary precision.format=fp16,bf16 with scaling.policy=dynamic,none
TEXT
}

# Where the terminal or the reader has gone, the sweep still ends in order.
note() { echo "sweep.sh: $*" >&2 || true; }
refuse() { note "$1"; exit 2; }

out='' named='' only='' action=run jobs=1 threads='' slurm='' tasks=1 plan=()
while [ $# -gt 0 ]; do
  option=$1
  shift
  case $option in
    --config | --configs | --vary | --set)
      words=()
      while [ $# -gt 0 ] && [[ $1 != -* ]]; do words+=("$1"); shift; done
      [ ${#words[@]} -gt 0 ] || refuse "$option: a value is missing"
      [ "$option" = --configs ] && option=--config
      plan+=("$option" "${words[@]}") ;;
    --dry-run) action=list ;;
    -h | --help) usage; exit 0 ;;
    -j[0-9]*) jobs=${option#-j} ;;
    --out | -j | --jobs | --threads | --slurm | --tasks | --table | --run)
      [ $# -gt 0 ] || refuse "$option: a value is missing"
      case $option in
        --out) named=--out out=$1 ;;
        -j | --jobs) jobs=$1 ;;
        --threads) threads=$1 ;;
        --slurm) action=slurm slurm=$1 ;;
        --tasks) tasks=$1 ;;
        --table) action=table named=--table out=$1 ;;
        --run) action=one only=$1 ;; # of an existing sweep, for the Slurm script
      esac
      shift ;;
    *) note "unknown option '$option'"; usage >&2; exit 2 ;;
  esac
done
[ -n "$out" ] || refuse "--out DIR is missing"
IFS= read -r -d '' out < <("${ADA_PYTHON:-python3}" "$here/sweep/folder.py" "$named" "$out") || exit 2
[[ $jobs =~ ^[1-9][0-9]*$ ]] || refuse "-j $jobs: expected a number of at least 1"
[[ $threads =~ ^([1-9][0-9]*)?$ ]] || refuse "--threads $threads: expected a number of at least 1"
[[ $tasks =~ ^[1-9][0-9]*$ ]] || refuse "--tasks $tasks: expected a number of at least 1"
[ "$tasks" = 1 ] || [ "$action" = slurm ] || [ "$action" = one ] || refuse "--tasks goes with --slurm"
program=${ADA_TRAIN:-${here%/*}/build/ada-train}
# shellcheck source=tools/sweep/runs.sh
. "$here/sweep/runs.sh"

if [ "$action" = table ]; then
  [ ${#plan[@]} -eq 0 ] || refuse "--table DIR stands alone"
  "${ADA_PYTHON:-python3}" "$here/sweep/table.py" "$out"
  note "$out/sweep.csv and $out/sweep_summary.csv written"
  "${ADA_PYTHON:-python3}" "$here/sweep/show.py" "$out"
  exit 0
fi
command -v -- "$program" >/dev/null || refuse "$program is missing; run tools/build.sh first"
if [ "$action" = one ]; then
  threads=${threads:-1}
  # Where a process ends by an error the others do.
  if [ "$tasks" -gt 1 ]; then
    launcher=(srun "--mpi=${SLURM_MPI_TYPE:-pmix}" "--ntasks=$tasks" "--cpus-per-task=$threads"
      --kill-on-bad-exit=1)
  fi
  status=0
  run_alone "$only" || status=$?
  exit "$status"
fi

cores=$(nproc)
if [ -z "$threads" ]; then threads=$((cores / jobs > 1 ? cores / jobs : 1)); fi
list=$("${ADA_PYTHON:-python3}" "$here/sweep/plan.py" make "${plan[@]}") || exit 2
if [ "$action" = list ]; then
  status=0
  list_runs "$list" || status=$?
  exit "$status"
fi

mkdir -p "$out/sweep_logs" || refuse "$out: no place for the folders of runs; choose another --out"
exec 9>"$out/sweep_logs/.lock" # closed in the runs themselves
flock -n 9 || refuse "another sweep.sh works in $out; wait for it, or choose another --out"
if ! { printf '%s\n' "$list" >"$out/.sweep.json" && mv "$out/.sweep.json" "$out/sweep.json"; } 2>/dev/null; then
  note "$out/sweep.json cannot be written; is the disk full?"
  exit 6
fi
if [ "$action" = slurm ]; then
  "${ADA_PYTHON:-python3}" "$here/sweep/slurm.py" --out="$out" --file="$slurm" --tool="$here/sweep.sh" \
    --jobs="$jobs" --threads="$threads" --tasks="$tasks" --program="${ADA_TRAIN-}"
  exit 0
fi

status=0
run_all || status=$?
part table "$out"
note "$out/sweep.csv: a row for each run; $out/sweep_summary.csv: mean and deviation over seeds"
if [ -n "$signal" ]; then # there may be nobody left to read
  part show "$out" || true
  exit "$status"
fi
part show "$out"
note_effect "$out"
exit "$status"
