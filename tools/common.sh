# Shared by the scripts beside it (sourced, not run): options, parallel jobs, and progress on a
# terminal.
# shellcheck shell=bash

# Ends the program where an option that takes a value has none.
need_value() {  # option, number of words left with it
  [ "$2" -ge 2 ] || { echo "${0##*/}: $1 needs a value (--help)" >&2; exit 2; }
}

# How many compilers at once: one per core, but no more than memory holds (the largest file takes
# just under 2 GB). ADA_JOBS overrides it.
parallel_jobs() {
  local cores gigabytes limit
  cores=$(nproc)
  gigabytes=$(awk '/^MemAvailable/ {print int($2 / 1000000)}' /proc/meminfo)
  limit=$((gigabytes / 2 > 1 ? gigabytes / 2 : 1))
  echo "${ADA_JOBS:-$((cores < limit ? cores : limit))}"
}

# On a terminal: shows the latest line of stdin that matches a regular expression, in place.
# Elsewhere: shows nothing.
progress_line() {
  if [ -t 1 ]; then
    awk -v pattern="$1" -v width="$(tput cols 2>/dev/null || echo 80)" '
      $0 ~ pattern { printf "\r\033[K%s", substr($0, 1, width - 1); fflush() }
      END { printf "\r\033[K" }'
  else
    cat >/dev/null
  fi
}

# The preset that an option --debug, --asan, --ubsan or --tsan leads to from the one so far; --asan
# and --ubsan go together.
preset_with() {  # preset, option
  case "$1 $2" in
    "asan --ubsan" | "ubsan --asan") echo asan-ubsan ;;
    "release "* | "${2#--} "*) echo "${2#--}" ;;
    *) echo "${0##*/}: $2 does not go with --$1 (--help)" >&2; exit 2 ;;
  esac
}
