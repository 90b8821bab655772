#!/usr/bin/env bash
# Benchmarks ada-train against PyTorch: builds the programs, makes a virtual environment with
# PyTorch for this alone (build/bench-venv; several GB on the first call), and hands over to
# bench.py. `--help` lists the options. ADA_BENCH_PYTHON: a Python that has torch.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1

needs_torch=true
targets=(bench_peak)
cuda=() setup=()
for option in "$@"; do
  case $option in
    cuda | --device=cuda) cuda=(--cuda) targets=() ;;
    --policy-cost | --log-cost) needs_torch=false targets=() ;;
    --ops) needs_torch=false targets=(bench_peak bench_ops) setup=(--bench) ;;
    -h | --help) exec python3 tools/bench/bench.py --help ;;
  esac
done

if ((${#cuda[@]})) && ! nvidia-smi -L >/dev/null 2>&1; then
  echo "run.sh: --device cuda: nvidia-smi finds no GPU on this machine; nothing was measured" >&2
  exit 1
fi
tools/setup.sh "${cuda[@]}" "${setup[@]}"
tools/build.sh --no-tests "${cuda[@]}"
if ((${#targets[@]})); then
  if ! cmake --build build --parallel 2 --target "${targets[@]}" >build/bench-build.log 2>&1; then
    tail -n 40 build/bench-build.log >&2
    exit 1
  fi
fi
python=${ADA_BENCH_PYTHON:-python3}
if $needs_torch && [ -z "${ADA_BENCH_PYTHON-}" ]; then
  venv=build/bench-venv
  if ! "$venv/bin/python" -c 'import torch, torchvision' 2>/dev/null; then
    echo "run.sh: installing PyTorch into $venv (log: build/bench-venv.log)" >&2
    python3 -m venv "$venv"
    if ! "$venv/bin/python" -m pip install --quiet torch torchvision numpy >build/bench-venv.log 2>&1; then
      tail -n 15 build/bench-venv.log >&2
      echo "run.sh: PyTorch could not be installed; ADA_BENCH_PYTHON may name a Python that has it" >&2
      exit 1
    fi
  fi
  python=$venv/bin/python
elif $needs_torch && ! "$python" -c 'import torch' 2>/dev/null; then
  echo "run.sh: ADA_BENCH_PYTHON=$python has no torch" >&2
  exit 1
fi
exec python3 tools/bench/bench.py --python "$python" "$@"
