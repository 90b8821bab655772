# Shared by the scripts beside it (sourced, not run): parallel jobs, and progress on a terminal.
# shellcheck shell=bash

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
