# Each kind of network and of operands, resumed runs and memory that is used up. Sourced by run.sh.
# shellcheck shell=bash disable=SC2154

# Name, configuration, values of --set. A configuration without its data set is skipped.
networks=(
  "gpt2 gpt2_jargon_quick"
  "llama llama_jargon_quick"
  "vit vit_cifar_quick"
  "segnet segnet_camvid_quick data.batch_size=4"
  "ssd ssd300_bccd_quick data.batch_size=4"
  "fp8_codes resnet20_cifar_quick_fp8 device.fp8=hardware"
  "resnet20_mxfp8 operands_resnet20 precision.operands=mxfp8_e4m3"
  "resnet20_nvfp4 operands_resnet20 precision.recipe=nvfp4_pretraining"
  "gpt2_te_fp8 operands_gpt2 precision.recipe=te_fp8_delayed"
  "gpt2_mxfp8 operands_gpt2 precision.recipe=te_mxfp8"
  "gpt2_deepseek operands_gpt2 precision.recipe=deepseek_v3"
  "gpt2_mxfp4 operands_gpt2 precision.recipe=mxfp4_hadamard"
)
steps_of=(train.max_steps=20 log.every=1 "checkpoint={every_steps: 10}")

# Processes at a time: each has a core for the CPU's steps.
turn() { while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done; }
last_line() { grep -av '^$' "$out/logs/$1.log" | tail -n 1; }

# One step, each op beside the CPU's; 20 steps on the GPU and on a core of the CPU.
network() {  # name, config, --set values ...
  local name=$1 config=$here/configs/$2.yaml status=0
  shift 2
  train 240 "${name}_compare" "" "$config" "$@" data.batch_size=4 train.max_steps=1 \
    "data.limit={train: 64, test: 8}" device.compare=true || status=$?
  if [ $status = 0 ]; then
    record network "$name" compare 0 "every op of a step agrees with the CPU"
  else
    record failed "$name, device.compare" "$(words_of $status 240): $(last_line "${name}_compare")"
  fi
  status=0
  train 120 "${name}_gpu" "" "$config" "${steps_of[@]}" data.batch_size=16 "$@" || status=$?
  if [ $status != 0 ]; then
    record failed "$name, 20 steps" "$(words_of $status 120): $(last_line "${name}_gpu")"
    return
  fi
  train 240 "${name}_cpu" "" "$config" "${steps_of[@]}" data.batch_size=16 "$@" \
    "device={kind: cpu, threads: 1}" || status=$?
  if [ $status != 0 ]; then
    record skipped "$name on the CPU" "$(words_of $status 240): $(last_line "${name}_cpu")"
    return
  fi
  record network "$name" losses 0 \
    "$(loss_gap "$out/runs/${name}_gpu/steps.csv" "$out/runs/${name}_cpu/steps.csv")"
}
weights_of() { sha256sum <"$out/runs/$1/checkpoints/step-00000020.safetensors" | cut -c 1-16; }
# 20 steps, and the last ten of them again from the checkpoint of step 10: the same weights.
resumed() {  # name, config
  local run=$1_resumed config=$here/configs/$2.yaml once again status=0
  train 60 "$run" "" "$config" "${steps_of[@]}" || status=$?
  once=$(weights_of "$run")
  rm "$out/runs/$run"/checkpoints/{best,step-00000020}.safetensors "$out/runs/$run/summary.json"
  limited 60 "${run}_again" "$ada" --config "$config" --output "$out/runs/$run" --resume \
    "${always[@]}" "${steps_of[@]}" || status=$?
  again=$(weights_of "$run")
  record network "$1" resumed "$status" "weights $once, resumed $again"
  [ "$status $again" = "0 $once" ] ||
    record failed "$1, resumed" "$(words_of $status 60); weights $once, resumed $again"
}
# A batch that no device holds: exit code 4, and a sentence that says so.
too_large() {
  local status=0
  train 120 too_large "" "$here/configs/resnet50_synthetic.yaml" data.batch_size=4096 \
    data.synthetic.train=4096 train.max_steps=2 || status=$?
  record network too_large status "$status" "$(last_line too_large)"
  [ $status = 4 ] || record failed "a batch that is too large" "$(words_of $status 120)"
}
section_networks() {
  local entry name config
  for entry in "${networks[@]}"; do
    read -r name config entry <<<"$entry"
    has_data "$name" "$config" || continue
    turn
    # shellcheck disable=SC2086
    network "$name" "$config" $entry &
  done
  turn; resumed resnet20 resnet20_cifar_quick &
  turn; resumed gpt2 gpt2_jargon_quick &
  turn; too_large &
  wait
}
