# What sweep.sh does with its runs (sourced, not run): which are left to do, start, wait, tell, and
# stop on a signal. Uses here, out, program, jobs, threads and note() of sweep.sh.
# shellcheck shell=bash disable=SC2154

declare -A running=() told=() # by process id: the run's name; whether it got the signal
launcher=() # of a run of several processes
failures=() refused=false signal='' total=0 ended=0 finished=0 skipped=0 failed=0

# Signals by which a scheduler, a timer or the system asks for the end: HUP USR1 USR2 ALRM XCPU VTALRM
# PROF PWR. They may come again by themselves.
asking=(1 10 12 14 24 26 27 30)

# A Python part. Ctrl-C, which reaches every process of the terminal, must not cut it short.
part() { (trap '' INT TERM "${asking[@]}"; exec "${ADA_PYTHON:-python3}" "$here/sweep/$1.py" "${@:2}"); }

# The options of a run, in the array `options`.
options_of() {
  mapfile -d '' -t options < <(part plan options "$1" "$2")
  [ ${#options[@]} -gt 0 ] || return 1
  options+=(--output "$out/$2" --name "$2" --threads "$threads" --no-progress --resume)
}

# Says which varied key leaves the gradients as they are; of the sweep in the folder $1.
note_effect() {
  local line
  while IFS= read -r line; do note "$line"; done < <(part effect "$program" "$1")
}

# What became of a run, for the table: NAME STATE EXIT_CODE.
set_state() { echo "$2 $3" >"$out/sweep_logs/$1.state"; }

# The line of a failed run's log that says why.
last_error() {
  local line
  line=$(grep -a '^ada-train: ' "$1" | tail -n 1)
  [ -n "$line" ] || line=$(grep -a . "$1" | tail -n 1)
  echo "${line:-no message}"
}

count() { printf '%*d/%d' "${#total}" "$ended" "$total"; }

tell_skipped() {
  ended=$((ended + 1)) skipped=$((skipped + 1))
  set_state "$1" finished 0
  note "$(count) skipped   $1 (finished before)"
}

# NAME refused|failed EXIT_CODE WHY
tell_failed() {
  ended=$((ended + 1)) failed=$((failed + 1))
  failures+=("$1: $2, exit code $3: $4")
  set_state "$1" "$2" "$3"
  note "$(count) $(printf %-9s "$2") $1 (exit code $3)"
}

# Starts a run in the background, in a process group of its own: a signal reaches it through
# stop_all alone, so that Ctrl-C comes once and it has time for its checkpoint. Where a process works
# in its folder, the run of a sweep that was killed, it waits for that one's end first.
start() {
  local name=$1 log=$out/sweep_logs/$1.log pid options who waiter=()
  if ! options_of "$out" "$name"; then
    tell_failed "$name" failed 2 "its options cannot be read from $out/sweep.json"
    return
  fi
  rm -f "$out/sweep_logs/$name.state"
  who=$(part lock "$out/$name")
  if [ -n "$who" ]; then
    waiter=("${ADA_PYTHON:-python3}" "$here/sweep/lock.py" "$out/$name")
    note "$(count) waiting   $name ($who works in its folder: a run that goes on without its sweep)"
  else
    : >"$log" # else it is still written
    note "$(count) started   $name"
  fi
  set -m
  "${waiter[@]}" "${launcher[@]}" "$program" "${options[@]}" >>"$log" 2>&1 </dev/null 9>&- &
  pid=$!
  set +m
  running[$pid]=$name
  if [ -n "$signal" ] && [ -z "${told[$pid]-}" ]; then tell_to_stop "$pid"; fi
}

# SIGTERM to a run. Where srun gets it, it kills its processes: scancel tells them instead. The
# number of a job may be that of its whole array, so that the task is named.
tell_to_stop() {
  local job=${SLURM_JOB_ID-}
  [ -z "${SLURM_ARRAY_TASK_ID-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  told[$1]=yes
  # One that waits for its folder (lock.py) has not started srun yet.
  if [ ${#launcher[@]} -gt 0 ] && ! grep -qa lock.py "/proc/$1/cmdline" 2>/dev/null; then
    scancel --signal=TERM "$job"
  else
    kill -TERM "$1" 2>/dev/null
  fi
}

# Takes note of a run that has ended: NAME EXIT_CODE.
finish() {
  local name=$1 code=$2 log=$out/sweep_logs/$1.log result who
  case $code in
    0)
      ended=$((ended + 1)) finished=$((finished + 1))
      set_state "$name" finished 0
      result=$(part table "$out" "$name")
      note "$(count) finished  $name${result:+ ($result)}"
      return ;;
    129 | 130 | 138 | 140 | 142 | 143 | 152 | 154 | 155 | 158)
      ended=$((ended + 1))
      set_state "$name" interrupted "$code"
      who=$(part lock "$out/$name")
      if [ -n "$who" ]; then
        note "$(count) left      $name (to $who, which goes on)"
      else
        note "$(count) stopped   $name (the next start goes on)"
      fi ;;
    *)
      if [ -z "$signal" ] && [ -n "$(part lock "$out/$name")" ]; then
        start "$name" # another process was there first
        return
      fi
      tell_failed "$name" failed "$code" "$(last_error "$log") (log: $log)" ;;
  esac
  part table "$out"
}

# Passes a signal on to all runs; nothing new is started afterwards.
stop_all() {
  local pid before=$signal
  signal=$1
  for pid in "${!running[@]}"; do tell_to_stop "$pid"; done
  if [ -z "$before" ] && [ ${#running[@]} -gt 0 ]; then
    note "stopping: each run writes a checkpoint (again: at once)"
  fi
}

# For signals that come again by themselves: a terminal that closes sends SIGHUP twice, and each
# line after the end of a pipe's reader gives SIGPIPE.
stop_once() { [ -n "$signal" ] || stop_all "$1"; }
stop_once_at() {
  local number
  # shellcheck disable=SC2064 # the number is the loop's
  for number in "$@"; do trap "stop_once $number" "$number"; done
}

# Waits until a run has ended, or a signal has come.
wait_for_one() {
  local pid='' code=0
  wait -n -p pid "${!running[@]}" 2>/dev/null || code=$? # one that ended before has no job
  if [ -z "${pid-}" ] && [ "$code" -eq 127 ]; then # one that ended before the call
    for pid in "${!running[@]}"; do kill -0 "$pid" 2>/dev/null || break; done
    code=0
    wait "$pid" || code=$?
  fi
  [ -n "${pid-}" ] || return 0
  local name=${running[$pid]}
  unset "running[$pid]"
  finish "$name" "$code"
}

# All runs of the plan; 1 where one failed, 128 + signal where one came.
run_all() {
  local decisions what name why failure
  trap 'stop_all 2' INT
  trap 'stop_all 15' TERM
  stop_once_at "${asking[@]}" 13
  mapfile -t decisions < <(part check "$program" "$out")
  total=${#decisions[@]}
  note "$total runs in $out, $jobs at a time, threads of each: $threads"
  note_effect "$out"
  while IFS=$'\t' read -r what name why <&3; do
    while [ -z "$signal" ] && [ ${#running[@]} -ge "$jobs" ]; do wait_for_one; done
    [ -z "$signal" ] || break
    case $what in
      finished) tell_skipped "$name" ;;
      refused) tell_failed "$name" refused 2 "$why"; refused=true ;;
      go) start "$name" ;;
    esac
  done 3< <(printf '%s\n' "${decisions[@]}")
  while [ ${#running[@]} -gt 0 ]; do wait_for_one; done
  local left=$((total - finished - skipped - failed))
  note "$finished finished, $skipped skipped, $failed failed, $left left"
  for failure in "${failures[@]}"; do note "  $failure"; done
  if $refused; then
    note "refused: put the old values back, delete the folders in $out, or choose another --out"
  fi
  [ -z "$signal" ] || return $((128 + signal))
  [ "$failed" -eq 0 ] && [ "$total" -gt 0 ]
}

# One run of the plan in the foreground of a Slurm task; ada-train's exit code.
run_alone() {
  local what name why code=0
  total=1
  # With srun the job script sends SIGUSR1 before the time limit; SIGTERM comes from Slurm, which
  # sends it to the processes too.
  if [ ${#launcher[@]} -gt 0 ]; then
    trap 'stop_all 15' USR1
    trap 'signal=15' TERM HUP INT
  else
    trap 'stop_all 15' TERM INT
    stop_once_at "${asking[@]}"
  fi
  IFS=$'\t' read -r what name why < <(part check "$program" "$out" "$1") || return 2
  mkdir -p "$out/sweep_logs"
  case $what in
    finished) tell_skipped "$name" ;;
    refused) tell_failed "$name" refused 2 "$why" ;;
    go) start "$name" ;;
  esac
  while [ ${#running[@]} -gt 0 ]; do wait_for_one; done
  part table "$out"
  [ ${#failures[@]} -eq 0 ] || note "  ${failures[0]}"
  read -r what code <"$out/sweep_logs/$name.state" || return 2
  return "$code"
}

# The runs of a plan (its JSON) as commands; 1 where ada-train refuses a configuration.
list_runs() {
  local names name options folder text='' word good=true
  folder=$(mktemp -d)
  printf '%s\n' "$1" >"$folder/sweep.json"
  mapfile -t names < <(part plan names "$folder")
  for name in "${names[@]}"; do
    options_of "$folder" "$name" || return 2
    printf -v word '%q ' "$program" "${options[@]}"
    text+=${word% }$'\n'
    "$program" "${options[@]}" --print-config >/dev/null || good=false
  done
  note_effect "$folder"
  rm -r "$folder"
  printf '%s' "$text" 2>/dev/null || { note "standard output cannot be written"; return 6; }
  $good || { note "${#names[@]} runs; see the errors above"; return 1; }
  note "${#names[@]} runs, all configurations are good"
}
