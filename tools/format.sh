#!/usr/bin/env bash
# Formats the C++ sources with clang-format 14 (Debian 12's; other versions format differently).
# usage: tools/format.sh [--check]
#   --check  changes nothing; exit 1 names the files that differ, exit 77 where there is no version 14
set -euo pipefail
cd "$(dirname "$0")/.."

check=false
case ${1-} in
  '') ;;
  --check) check=true ;;
  *) sed -n '3,4s/^# //p' "$0" >&2; exit 2 ;;
esac

formatter=
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" >/dev/null && [[ $("$candidate" --version) == *'version 14.'* ]]; then
    formatter=$candidate
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "[skipped] format: clang-format 14 is not installed (Debian 12: tools/setup.sh --dev)" >&2
  exit 77
fi

mapfile -d '' files < <(find src tests \
  \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z)
if ! $check; then
  "$formatter" -i "${files[@]}"
  exit
fi
# A process for some hundred files: starting one takes longer than looking at a file.
if ! report=$(printf '%s\0' "${files[@]}" |
  xargs -0 -n 100 -P "$(nproc)" "$formatter" --dry-run -Werror 2>&1); then
  wrong=$(sed -nE 's/^([^: ]+):[0-9]+:[0-9]+: error: code should be clang-format.*/\1/p' \
    <<<"$report" | sort -u)
  if [ -n "$wrong" ]; then
    sed 's/$/: not formatted (run tools\/format.sh)/' <<<"$wrong"
  else
    printf '%s\n' "$report"
  fi
  exit 1
fi
