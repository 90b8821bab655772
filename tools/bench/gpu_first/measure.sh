# Bits and times: whole runs with each switch of src/backend/cuda/switches.h. Sourced by run.sh.
# shellcheck shell=bash disable=SC2154

# Name and variables of each. all_off: everything that can be done without.
switches=(
  "graphs ADA_CUDA_GRAPHS=0"
  "side_stream ADA_CUDA_SIDE_STREAM=0"
  "pdl_off ADA_CUDA_PDL=off"
  "pdl_early ADA_CUDA_PDL=early"
  "plain ADA_CUDA_PLAIN=0"
  "last_block ADA_CUDA_LAST_BLOCK=0"
  "cublas ADA_CUDA_CUBLAS=0"
  "round ADA_CUDA_ROUND=0"
  "cudnn_skip ADA_CUDNN_SKIP=1"
  "poison ADA_CUDA_POISON=1"
)
all_off="ADA_CUDA_GRAPHS=0 ADA_CUDA_SIDE_STREAM=0 ADA_CUDA_PDL=off ADA_CUDA_PLAIN=0
  ADA_CUDA_LAST_BLOCK=0 ADA_CUDA_CUBLAS=0 ADA_CUDA_ROUND=0"
resnet20=$here/configs/resnet20_cifar.yaml
data=(data.path="$here/cifar-10")
[ -d "$here/cifar-10" ] || data=("data={dataset: synthetic, batch_size: 128, synthetic: {height: 32, \
width: 32, channels: 3, classes: 10, train: 20000, test: 1000}}")

export ADA_DATA=$here/data
# Of every run on the GPU: it ends with train.max_steps.
always=(--no-progress --set device.kind=cuda evaluate.every_epochs=0 train.epochs=1000000)

# Whether a configuration's data set is there; else it is recorded as skipped.
has_data() {  # name, config
  local log=$out/logs/$1_dry.log
  "$ada" --config "$here/configs/$2.yaml" --dry-run >"$log" 2>&1 && return
  record skipped "$1" "$(grep -av '^$' "$log" | tail -n 1)"
  return 1
}
# A run of the program; its folder is runs/NAME.
train() {  # seconds, name, variables, config, --set values ...
  local seconds=$1 name=$2 variables=$3 config=$4
  shift 4
  # shellcheck disable=SC2086
  limited "$seconds" "$name" env $variables "$ada" --config "$config" --output "$out/runs/$name" \
    --overwrite "${always[@]}" "$@"
}

# 300 steps of ResNet-20, of which the first alone is logged; the hash of its weights.
bits_of() {  # name, variables
  local status=0 hash=none
  train 60 "bits_$1" "$2" "$resnet20" "${data[@]}" train.max_steps=300 log.every=1000 \
    "checkpoint={every_steps: 300, keep: 1}" || status=$?
  if [ $status = 0 ]; then
    hash=$(cat "$out/runs/bits_$1"/checkpoints/*.safetensors | sha256sum | cut -c 1-16)
  else
    record failed "300 steps, $1" "$(words_of $status 60)"
  fi
  record bits "$1" "$hash"
  rm -rf "$out/runs/bits_$1/checkpoints"
  say "  $1: $hash"
}

section_bits() {
  local entry status=0
  bits_of defaults ""
  bits_of defaults_again ""
  for entry in "${switches[@]}"; do bits_of "${entry%% *}" "${entry#* }"; done
  bits_of all_off "$all_off"
  bits_of all_off_again "$all_off"
  # Bounds of sums are computed on one core, value by value: a small batch, few images at the end.
  local few="data.limit={train: 64, test: 16}"
  train 120 compare "" "$resnet20" "${data[@]}" data.batch_size=8 train.max_steps=2 "$few" \
    device.compare=true || status=$?
  record compare status "$status" "$(tail -n 1 "$out/logs/compare.log")"
  [ $status = 0 ] || record failed "device.compare, 2 steps" "$(tail -n 1 "$out/logs/compare.log")"
  status=0
  train 60 losses "" "$resnet20" "${data[@]}" train.max_steps=20 log.every=1 \
    "checkpoint={every_epochs: 0}" || status=$?
  [ $status = 0 ] || record failed "20 logged steps" "$(words_of $status 60)"
  if [ -f "$out/runs/losses/steps.csv" ] && [ -f "$here/cpu_steps.csv" ]; then
    record losses "$(loss_gap "$out/runs/losses/steps.csv" "$here/cpu_steps.csv")"
  fi
}

# The largest distance between the losses of two runs, in per cent of the second's.
loss_gap() {  # steps.csv, the reference's
  awk -F, '
    FNR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    NR == FNR { reference[$at["step"]] = $at["loss"]; next }
    ($at["step"] in reference) && reference[$at["step"]] != 0 {
      ++count
      gap = ($at["loss"] / reference[$at["step"]] - 1) * 100
      if (gap < 0) gap = -gap
      if (gap >= worst) { worst = gap; step = $at["step"] }
      if (count == 1) first = gap
    }
    END {
      if (!count) { print "no step in common"; exit }
      printf "%d steps, first %.3g %%, worst %.3g %% (step %d)", count, first, worst, step
    }' \
    "$2" "$1"
}

# Model, configuration, batch, steps, tokens of a sample (1: an image), values of --set.
timed=(
  "resnet20 resnet20_cifar 128 500 1"
  "vit_cifar vit_cifar 128 500 1"
  "gpt2_jargon gpt2_jargon 16 500 128 precision.format=fp16 scaling.policy=adaptive scaling.init_scale=auto"
  "resnet50 resnet50_synthetic 256 60 1"
)
# Ways to round the operands of products, beside none, in bf16.
operands=(mxfp8_e4m3 nvfp4)

# Images or tokens a second of all steps but those before the first row of timing.csv, which warm up.
speed_of() {  # model, name, samples or tokens of a step, status
  local speed=none file=$out/runs/$1_$2/timing.csv
  [ "$4" = 0 ] && speed=$(awk -F, -v batch="$3" '
    NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    NR == 2 { first = $at["step"]; next }
    { last = $at["step"]; seconds += $at["seconds"] }
    END { if (seconds > 0) printf "%.1f", (last - first) * batch / seconds; else print "none" }' \
    "$file")
  [ "$4" = 0 ] || record failed "times of $1, $2" "$(words_of "$4" 120)"
  record speed "$1" "$2" "$speed"
  say "  $1, $2: $speed a second"
}
time_one() {  # model, config, batch, steps, tokens, name, variables, --set values ...
  local model=$1 config=$here/configs/$2.yaml batch=$3 steps=$4 tokens=$5 name=$6 variables=$7
  local status=0
  shift 7
  train 120 "${model}_$name" "$variables" "$config" data.batch_size="$batch" \
    train.max_steps="$steps" log.every=$((steps / 5)) "checkpoint={every_epochs: 0}" "$@" ||
    status=$?
  speed_of "$model" "$name" $((batch * tokens)) "$status"
}
time_torch() {  # model, batch, steps, tokens, mode
  local status=0 log=$out/logs/torch_$1_$5.log seconds
  echo "$3" | limited 150 "torch_$1_$5" "${ADA_BENCH_PYTHON:-python3}" "$here/torch/torch_worker.py" \
    --model "$1" --mode "$5" --batch "$2" --device cuda || status=$?
  seconds=$(sed -n 's/.*"seconds": \[\([0-9.e-]*\).*/\1/p' "$log")
  if [ -z "$seconds" ]; then
    record skipped "PyTorch, $1 $5" "$(tail -n 1 "$log"), $(words_of $status 150)"
    return
  fi
  seconds=$(awk -v s="$seconds" -v n="$(($2 * $4))" 'BEGIN { printf "%.1f", n / s }')
  record speed "$1" "torch $5" "$seconds"
  say "  $1, PyTorch $5: $seconds a second"
}

# --brief: the defaults and PyTorch alone.
section_times() {
  local row entry model config batch steps tokens rest of=() values=()
  for row in "${timed[@]}"; do
    read -r model config batch steps tokens rest <<<"$row"
    of=("$model" "$config" "$batch" "$steps" "$tokens")
    read -ra values <<<"$rest"
    if [ "$model" = resnet20 ]; then values=("${data[@]}")
    else has_data "times of $model" "$config" || continue; fi
    time_one "${of[@]}" defaults "" "${values[@]}"
    time_torch "$model" "$batch" "$steps" "$tokens" fp16
    time_torch "$model" "$batch" "$steps" "$tokens" fp16-graphed
    $brief && continue
    time_one "${of[@]}" autotune "" "${values[@]}" \
      "device={kind: cuda, autotune: true, deterministic: false}"
    for entry in "${switches[@]}"; do
      case $entry in poison*) continue ;; esac  # fills memory once, before all steps
      time_one "${of[@]}" "${entry%% *}" "${entry#* }" "${values[@]}"
    done
    time_one "${of[@]}" defaults_again "" "${values[@]}"
  done
  for row in "resnet20 operands_resnet20 128 500 1" "gpt2_jargon operands_gpt2 16 500 128"; do
    read -r model config batch steps tokens <<<"$row"
    local of=("$model operands" "$config" "$batch" "$steps" "$tokens")
    has_data "times of $model operands" "$config" || continue
    time_one "${of[@]}" defaults ""
    for entry in "${operands[@]}"; do
      time_one "${of[@]}" "$entry" "" precision.operands="$entry"
    done
  done
}
