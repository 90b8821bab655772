# results.tsv of run.sh as one page of verdicts: what differs and which switch owns it; what gains
# less than 2 % and should be off.
BEGIN {
  FS = "\t"
  least = 2  # per cent: what gains less is not worth what it may break
}
$1 == "version" { version[$2] = $3 }
$1 == "library" { libraries = libraries "* " $2 ": " $3 "\n" }
$1 == "failed" { failures = failures "* " $2 ": " $3 "\n"; ++failed }
$1 == "skipped" { skips = skips "* " $2 ": " $3 "\n" }
$1 == "test" { parts = parts "* part " $2 ": " $4 "\n" }
$1 == "bits" { hash[$2] = $3; names[++count] = $2 }
$1 == "compare" { compared = $3 == 0 ? "every op agrees with the CPU in 2 steps" : "stopped: " $4 }
$1 == "losses" { losses = "* losses beside the CPU's: " $2 "\n" }
$1 == "speed" { speed[$2, $3] = $4; if (!($2 in seen)) models[++model_count] = $2
                seen[$2] = 1; runs[$2, ++run_count[$2]] = $3 }
$1 == "network" { networks = networks "* " $2 ", " $3 ": " ($4 == 0 ? "" : "exit code " $4 ": ") $5 "\n" }
$1 == "sanitizer" { tools = tools "* " $2 ": " $3 "\n" }

function bits_verdict(    i, name, text, base) {
  base = hash["defaults"]
  if (base == "none") return "* 300 steps with the defaults failed: no hash to compare with\n"
  if (hash["defaults_again"] != base)
    text = "* **the defaults do not repeat themselves**: a race, or a library that is not" \
      " deterministic; a switch whose two runs are alike owns it\n"
  else
    text = "* the defaults repeat themselves (" base ")\n"
  if (hash["all_off"] != hash["all_off_again"])
    text = text "* with all switches off two runs differ: the cause is outside of them\n"
  for (i = 1; i <= count; ++i) {
    name = names[i]
    if (name ~ /^defaults|^all_off/) continue
    if (hash[name] == base) same = same (same == "" ? "" : ", ") name
    else if (hash[name] == "none") text = text "* " name ": failed\n"
    else if (name ~ /^(cublas|round|cudnn_skip)$/)
      text = text "* " name ": other bits, as other kernels of the libraries may give\n"
    else
      text = text "* **" name " owns a difference**: " hash[name] "\n"
  }
  return text (same == "" ? "" : "* the same bits without each of: " same "\n")
}
function ratio(model, name, base) {
  if (speed[model, base] + 0 == 0 || speed[model, name] + 0 == 0) return 0
  return speed[model, name] / speed[model, base]
}
function speed_verdict(model,    i, name, base, spread, text, gain, r) {
  base = "defaults"
  if (speed[model, base] + 0 == 0) return "* no time of the defaults\n"
  text = "\n| " model " | a second | of the defaults |\n|---|---|---|\n"
  for (i = 1; i <= run_count[model]; ++i) {
    name = runs[model, i]
    r = ratio(model, name, base)
    text = text "| " name " | " speed[model, name] " | " (r > 0 ? sprintf("%.3f", r) : "") " |\n"
  }
  text = text "\n"
  r = ratio(model, "defaults_again", base)
  if (r > 0) text = text sprintf("* the defaults twice: %.1f %% apart\n", (r > 1 ? r - 1 : 1 - r) * 100)
  if (ratio(model, base, "torch fp16") > 0)
    text = text sprintf("* %.2f times PyTorch's AMP, eager\n", ratio(model, base, "torch fp16"))
  if (ratio(model, base, "torch fp16-graphed") > 0)
    text = text sprintf("* %.2f times PyTorch's AMP, graphed\n", ratio(model, base, "torch fp16-graphed"))
  for (i = 1; i <= run_count[model]; ++i) {
    name = runs[model, i]
    if (name ~ /^defaults|^torch/ || ratio(model, name, base) == 0) continue
    # More than the defaults have.
    if (model ~ / operands$/ || name ~ /^(autotune|pdl_early|cudnn_skip)$/) {
      gain = (ratio(model, name, base) - 1) * 100
      text = text sprintf("* %s: %+.1f %% beside the defaults\n", name, gain)
      continue
    }
    gain = (ratio(model, base, name) - 1) * 100
    text = text sprintf("* %s gains %.1f %%%s\n", name == "pdl_off" ? "pdl" : name, gain, \
                        gain < least ? ": **less than " least " %, should be off**" : "")
  }
  return text
}
END {
  print "# Verdicts\n"
  print "Program: " version["program"] "; GPU: " (version["gpu"] == "" ? "none" : version["gpu"]) ".\n"
  printf "%s", libraries
  if (failed) printf "\n## Failed\n\n%s", failures
  if (skips != "") printf "\n## Skipped\n\n%s", skips
  if (parts != "") printf "\n## Device tests\n\n%s", parts
  if (count) {
    printf "\n## Bits (ResNet-20, 300 steps)\n\n%s%s", bits_verdict(), losses
    if (compared != "") print "* device.compare: " compared
  }
  if (networks != "") printf "\n## Networks (20 steps beside the CPU's)\n\n%s", networks
  for (i = 1; i <= model_count; ++i) printf "\n## Times\n%s", speed_verdict(models[i])
  if (tools != "") printf "\n## compute-sanitizer\n\n%s", tools
}
