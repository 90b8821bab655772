#!/bin/bash
# What number formats and recipes do to the loss of four networks: the trainings behind
# configs/ATLAS.md, in parts that may be interrupted, and its tables.
#
# usage: tools/sweep/atlas.sh --out DIR [--part PART]... [--steps N] [--seeds 3] [--jobs N]
#        tools/sweep/atlas.sh --out DIR --table      the tables of what there is, as Markdown
#        tools/sweep/atlas.sh --list                 the parts
# Without --part all parts run, one after the other. The same command goes on where it was stopped.
# Parts of one network share its trainings in fp32; those of several may run at once. --steps: of each
# training (default: those of the configuration).
# Environment: ADA_TRAIN, the program (build/ada-train of this tree); ADA_PYTHON.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/../.." && pwd)
program=${ADA_TRAIN:-$tree/build/ada-train}

declare -A config=(
  [gpt]=gpt2_jargon_quick [llama]=llama_jargon_quick [vit]=vit_cifar_quick
  [resnet20]=resnet20_cifar_quick)
networks=(gpt llama vit resnet20)
groups=(half fp8 accumulators blocks fp4 states)
# Muon has a baseline of its own, and is for matrices.
extra=(gpt/muon llama/muon vit/muon gpt/ablate gpt/switch)

fail() { echo "atlas.sh: $*" >&2 && exit 2; }

all_parts() {
  local network group
  for group in "${groups[@]}"; do
    for network in "${networks[@]}"; do echo "$network/$group"; done
  done
  printf '%s\n' "${extra[@]}"
}

out='' steps='' seeds=3 jobs=0 table=false parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --out | --part | --steps | --seeds | --jobs) [ $# -gt 1 ] || fail "$1: expected a value" ;;&
    --out) out=$2 && shift ;;
    --part) parts+=("$2") && shift ;;
    --steps) steps=$2 && shift ;;
    --seeds) seeds=$2 && shift ;;
    --jobs) jobs=$2 && shift ;;
    --table) table=true ;;
    --list) all_parts && exit 0 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) fail "$1: unknown option (--help)" ;;
  esac
  shift
done
[ -n "$out" ] || fail "--out DIR is missing (--help)"
[[ $steps =~ ^([1-9][0-9]*)?$ ]] || fail "--steps $steps: expected a whole number from 1 on"
[[ $seeds =~ ^[1-9][0-9]*$ ]] || fail "--seeds $seeds: expected a whole number from 1 on"
for part in ${parts[@]+"${parts[@]}"}; do
  all_parts | grep -xF "$part" >/dev/null || fail "--part $part: expected one of $(all_parts | tr '\n' ' ')"
done
if $table; then exec "${ADA_PYTHON:-python3}" "$here/atlas_table.py" "$out"; fi
[ ${#parts[@]} -gt 0 ] || mapfile -t parts < <(all_parts)

# A file of keys as an arm: NAME and its YAML.
fragment() {
  mkdir -p "$out/arms"
  printf '%b\n' "$2" >"$out/arms/$1.yaml"
  echo "$out/arms/$1.yaml"
}

# torchao's float8 with the sums of an H100: fast accumulation in the forward product alone; the
# products that stay in bf16 sum as its bf16 cores do.
accumulators() {
  local fp8='forward: hopper_fp8, dx: hopper_fp8_promote128'
  local recipe
  for recipe in tensorwise rowwise; do
    fragment "fp8_${recipe}_h100" \
      "precision: {format: bf16, recipe: torchao_fp8_$recipe, accumulate: {$fp8, dw: hopper_fp8_promote128}}\nscaling: {policy: none, init_scale: 1}"
  done
  fragment fp8_rowwise_gw_hp_h100 \
    "precision: {format: bf16, recipe: torchao_fp8_rowwise_gw_hp, accumulate: {$fp8, dw: hopper_f32}}\nscaling: {policy: none, init_scale: 1}"
}

muon() {
  local rule='optimizer: {kind: muon, lr: 0.01, match: ["*.weight"], others: {kind: adamw, lr: 1.0e-3}}'
  fragment "muon_$1" "precision: {format: $1}\nscaling: {policy: none, init_scale: 1}\n$rule"
}

steps_of() { # those of the trainings, for the step at which a schedule switches
  if [ -n "$steps" ]; then echo "$steps"; else
    "$program" train "$tree/configs/${config[$1]}.yaml" --dry-run --json |
      "${ADA_PYTHON:-python3}" -c 'import json, sys; print(json.load(sys.stdin)["steps"])'
  fi
}

# The last tenth of the steps with all products, or one of them, back in bf16 (torchtitan #3914).
switches() {
  local from operands name
  from=$(($(steps_of "$1") * 9 / 10 + 1))
  for name in all forward backward; do
    case $name in
      all) operands='none' ;;
      forward) operands='{forward: {x: none, w: none}}' ;;
      backward) operands='{dx: {dy: none, w: none}, dw: {x: none, dy: none}}' ;;
    esac
    fragment "switch_$name" \
      "precision: {format: bf16, recipe: nvfp4_pretraining, schedule: [{from_step: $from, operands: $operands}]}\nscaling: {policy: none, init_scale: 1}"
  done
}

arms_of() {
  case $2 in
    half) printf '%s\n' bf16 fp16+dynamic fp16+adaptive ;;
    fp8) printf '%s\n' torchao_fp8_{tensorwise,rowwise,rowwise_gw_hp} ;;
    accumulators) accumulators ;;
    blocks) printf '%s\n' te_mxfp8 deepseek_v3 mxfp6_e2m3 mxfp6_e3m2 ;;
    fp4) printf '%s\n' torchao_nvfp4 nvfp4_pretraining ;;
    states) echo bf16+torchao_8bit ;;
    muon) muon bf16 ;;
    switch) echo nvfp4_pretraining && switches "$1" ;;
  esac
}

run_part() {
  local network=${1%/*} group=${1#*/} baseline=fp32 said runs arms
  said=$out/$network/$group.json runs=$out/$network/runs
  mkdir -p "$out/$network"
  local options=(--seeds "$seeds" --json)
  [ -z "$steps" ] || options+=(--steps "$steps")
  [ "$jobs" = 0 ] || options+=(--jobs "$jobs")
  options+=(--set evaluate.every_epochs=0)
  echo "atlas.sh: $1" >&2
  if [ "$group" = ablate ]; then
    "$program" ablate "$tree/configs/${config[$network]}.yaml" --out "$out/$network/ablate" \
      "${options[@]}" precision='{recipe: nvfp4_pretraining}' scaling='{policy: none}' >"$said.part" ||
      return $?
  else
    if [ "$group" = muon ]; then baseline=$(muon fp32) runs=$out/$network/muon; fi
    arms=$(arms_of "$network" "$group" | paste -sd,) || return $?
    "$program" choose "$tree/configs/${config[$network]}.yaml" --baseline "$baseline" \
      --formats "$arms" --out "$runs" "${options[@]}" \
      >"$said.part" || return $?
  fi
  mv "$said.part" "$said"
}

for part in "${parts[@]}"; do
  code=0
  run_part "$part" || code=$?
  case $code in
    0) ;;
    129 | 130 | 138 | 140 | 142 | 143 | 152) exit "$code" ;; # the same command goes on
    *) echo "atlas.sh: $part: exit code $code; the other parts go on" >&2 && failed=1 ;;
  esac
done
exit "${failed:-0}"
