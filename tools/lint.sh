#!/usr/bin/env bash
# Static checks that go beyond the compiler: include directions, clang-tidy 14, shellcheck, Python
# syntax. A tool that is not installed is named and skipped; any finding is an exit code of 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

usage() {
  cat <<'TEXT'
usage: tools/lint.sh [--all | FILE...]

  (none)   clang-tidy on the C++ sources that differ from the last commit
  --all    clang-tidy on all of them (minutes)
  FILE...  clang-tidy on these
The other checks always see everything. Nothing has to be built first.
TEXT
}

# Files that include NVIDIA's headers stand in no compile_commands.json of a build without CUDA.
nvidia='src/backend/cuda/\(device/\|matmul/cu\(dnn\|blas\)_\)'
all_sources() { find src tests -name '*.cpp' | grep -v "$nvidia" | sort; }
changed_sources() {
  { git diff --name-only --relative HEAD -- src tests 2>/dev/null &&
    git ls-files --others --exclude-standard -- src tests; } | grep '\.cpp$' | grep -v "$nvidia" | sort -u || true
}
sources=()
case ${1-} in
  --all) mapfile -t sources < <(all_sources) ;;
  -h | --help) usage; exit 0 ;;
  '') if git rev-parse -q --verify HEAD >/dev/null 2>&1; then
        mapfile -t sources < <(changed_sources)
      else
        mapfile -t sources < <(all_sources)
      fi ;;
  -*) echo "lint.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  *) sources=("$@") ;;
esac

status=0
run() { "$@" || status=1; }
skip() { echo "[skipped] $1" >&2; }

run tools/check_arrows.py
run tools/check_circles.py
run tools/check_heads.py
run tools/check_names.py
run tools/check_words.py
run tools/check_pages.py
while IFS= read -r script; do # syntax only, no __pycache__
  run python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$script"
done < <(find tools data/scripts tests -name '*.py')
if command -v shellcheck >/dev/null; then
  mapfile -t scripts < <(find tools data/scripts tests .ci -name '*.sh' -o -path .ci/run)
  run shellcheck -x "${scripts[@]}"
else
  skip "shellcheck is not installed (tools/setup.sh --dev)"
fi

tidy=
for candidate in clang-tidy-14 clang-tidy; do
  if command -v "$candidate" >/dev/null && [[ $("$candidate" --version) == *'version 14.'* ]]; then
    tidy=$candidate
    break
  fi
done
if [ -z "$tidy" ]; then
  skip "clang-tidy 14 is not installed (Debian 12: tools/setup.sh --dev)"
elif [ ${#sources[@]} -gt 0 ]; then
  # Each file for itself, as clang-tidy wants it.
  cmake --preset release -B build/lint -DADA_UNITY=OFF >/dev/null
  printf '%s\0' "${sources[@]}" |
    xargs -0 -n 1 -P "$(parallel_jobs)" "$tidy" -p build/lint --quiet 2> >(grep -v 'warnings generated' >&2) || status=1
fi
exit $status
