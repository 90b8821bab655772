// The table of presets, system by system, confirmed by recorded traces.
#include "scaling/policies/presets.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "error.h"
#include "io/text.h"

namespace ada::scaling {
namespace {

constexpr double kFollowsMaxScale = 0, kFollowsGrowth = 0;  // Resolved fills these in

// clang-format off
std::vector<DynamicPreset> MakePresets() {
  // parameters: preset, init_scale, growth_factor, backoff_factor, growth_interval, min_scale,
  //             max_scale, hysteresis, consecutive_hysteresis, tolerance, error_at_min_scale
  return {
      {"pytorch",
       {"pytorch", 65536, 2, 0.5, 2000, 0, 0},
       "an overflow lowers the scale; grows after growth_interval clean steps in a row, never to "
       "inf",
       "pytorch/pytorch torch/amp/grad_scaler.py", {}, 0,
       {.double_factors = true, .finite_growth = true}},
      {"tensorflow",
       {"tensorflow", 0x1p15, 2, kFollowsGrowth, 2000, 1, 0},
       "as pytorch, with one factor that multiplies and divides, and a floor",
       "tensorflow/tensorflow tensorflow/python/training/experimental/loss_scale.py", {}, 0,
       {.divides = true, .finite_growth = true}},
      {"keras",
       {"keras", 0x1p15, 2, kFollowsGrowth, 2000, 0, 0},
       "as pytorch, but growth is not checked: the scale can reach inf and stay there",
       "keras-team/keras keras/src/optimizers/loss_scale_optimizer.py", {}, 0,
       {.divides = true}},
      {"apex",
       {"apex", 65536, 2, kFollowsGrowth, 2000, 0, 0x1p24},
       "as pytorch, with a ceiling that cuts the start as well; an attempt at scale 0 ends the run "
       "(1. / scale is a ZeroDivisionError there)",
       "NVIDIA/apex apex/amp/scaler.py", {}, 0,
       {.fp32 = false, .divides = true, .clamps_start = true, .ends_at_zero = true}},
      {"deepspeed",
       {"deepspeed", 65536, 2, kFollowsGrowth, 1000, 1, 0, 2, false, 0, true},
       "the first overflows are forgiven (hysteresis, refilled when the scale grows); an overflow "
       "at the floor ends the run; first growth after growth_interval + 1 clean steps",
       "microsoft/DeepSpeed deepspeed/runtime/fp16/loss_scaler.py",
       {"hysteresis", "consecutive_hysteresis"}, 0,
       {.fp32 = false, .divides = true, .lag = 0, .recounts = true}},
      {"megatron",
       {"megatron", 0x1p32, 2, 0.5, 1000, 1, 0, 2},
       "the first overflows are forgiven (hysteresis, refilled when the scale grows)",
       "NVIDIA/Megatron-LM megatron/core/optimizer/grad_scaler.py", {"hysteresis"}, 0, {}},
      {"fairseq",
       {"fairseq", 0x1p15, 2, kFollowsGrowth, 2000, 0, 0, 1, false, 0, true},
       "falls where overflows since the last change reach the share `tolerance`; a scale of 0.0001 "
       "or less ends the run unless error_at_min_scale is false",
       "facebookresearch/fairseq fairseq/optim/dynamic_loss_scaler.py", {"tolerance"}, 0,
       {.kind = DynamicKind::kFairseq, .fp32 = false, .divides = true}},
      {"nnabla",
       {"nnabla", 8, 2, kFollowsGrowth, 2000, 0, 0},
       "an overflow lowers the scale and the step is tried again at once with the next batch, up "
       "to 100 times; first growth after growth_interval + 2 clean steps",
       "sony/nnabla python/src/nnabla/experimental/mixed_precision_training.py", {}, 100,
       {.fp32 = false, .divides = true, .lag = 1, .recounts = true}},
      {"cerebras",
       {"cerebras", 0x1p15, 2, kFollowsGrowth, 2000, 0x1p-14, 0x1p15, 1, false, 0.05},
       "falls where overflows since the last change exceed the share `tolerance`; grows after "
       "growth_interval steps without a change",
       "Cerebras/modelzoo modelzoo/common/tf/optimizers/LossScale.py", {"tolerance"}, 0,
       {.kind = DynamicKind::kCerebras, .divides = true}},
      {"openseq2seq_backoff",
       {"openseq2seq_backoff", kFollowsMaxScale, 2, kFollowsGrowth, 2000, 1, 0x1p14},
       "starts at max_scale; as pytorch within its bounds",
       "NVIDIA/OpenSeq2Seq open_seq2seq/optimizers/automatic_loss_scaler.py", {}, 0,
       {.divides = true, .clamps_both = true}},
      {"mindspore",
       {"mindspore", 0x1p24, 2, kFollowsGrowth, 2000, 1, 0},
       "as tensorflow, growth unchecked; the 1001st overflow in a row ends the run",
       "mindspore-ai/mindspore mindspore/train/loss_scale_manager.py", {}, 0,
       {.fp32 = false, .divides = true, .overflows_in_a_row = 1000}},
      {"paddle",
       {"paddle", 65536, 2, 0.5, 2000, 0, 0},
       "falls after `hysteresis` overflows in a row (its decr_every_n_nan_or_inf)",
       "PaddlePaddle/Paddle python/paddle/amp/grad_scaler.py", {"hysteresis"}, 0,
       {.refilled_by_fall = true, .refilled_by_clean = true}},
      {"jmp",
       {"jmp", 0x1p15, 2, kFollowsGrowth, 2000, 1, 0},
       "as tensorflow",
       "google-deepmind/jmp jmp/_src/loss_scale.py", {}, 0,
       {.divides = true, .finite_growth = true}},
      {"flax",
       {"flax", 65536, 2, 0.5, 2000, FLT_MIN, FLT_MAX},
       "as pytorch, grows every growth_interval + 1 clean steps; the scale stays a normal fp32",
       "google/flax flax/training/dynamic_scale.py", {}, 0,
       {.lag = 0}},
      {"mxnet",
       {"mxnet", 65536, 2, kFollowsGrowth, 2000, 0, 0x1p24},
       "as pytorch with a ceiling; each new scale is in force one step late",
       "apache/mxnet python/mxnet/amp/loss_scaler.py", {}, 0,
       {.fp32 = false, .divides = true, .deferred = true}},
      {"chainer",
       {"chainer", 1, 2, 0.5, 1000, 1, 65504},
       "doubles with each clean step until the first overflow, then with each by "
       "growth_factor^(1 / growth_interval)",
       "chainer/chainer chainer/optimizer.py", {}, 0,
       {.kind = DynamicKind::kChainer, .fp32 = false, .clamps_both = true}},
      {"marian",
       {"marian", 8, 1, kFollowsGrowth, 10000, 8, 0},
       "falls and skips above the floor; at the floor NaN become 0 and inf the largest value, and "
       "the update takes place; growth_factor 1 (its default) keeps the scale",
       "marian-nmt/marian-dev src/training/graph_group.cpp", {}, 0,
       {.kind = DynamicKind::kMarian, .divides = true}},
      {"guided_diffusion",
       {.preset = "guided_diffusion"},
       "the scale is 2^g, g grows by lg_growth at each clean step and falls by 1 at an overflow; no "
       "bounds",
       "openai/guided-diffusion guided_diffusion/fp16_util.py", {"init_lg_scale", "lg_growth"}, 0,
       {.kind = DynamicKind::kGuided, .fp32 = false}, /*common_keys=*/false},
      {"apex_hysteresis",
       {"apex_hysteresis", 65536, 2, 0.5, 2000, 0, 0, 2},
       "as pytorch, but the first hysteresis - 1 overflows are forgiven, and anew after each clean "
       "step (NeMo, Megatron-Bridge)",
       "NVIDIA/apex csrc/update_scale_hysteresis.cu", {"hysteresis"}, 0,
       {.double_factors = true, .finite_growth = true, .refilled_by_clean = true}},
      {"mindformers",
       {"mindformers", 65536, 2, kFollowsGrowth, 20, 1, 0},
       "grows after a window of a list from min_window to max_window, which starts at "
       "growth_interval: three growths move on to the next window, three overflows to one of 1 step",
       "mindspore-lab/mindformers mindformers/wrapper/adaptive_loss_scale.py",
       {"min_window", "max_window"}, 0,
       {.kind = DynamicKind::kWindowList}},
  };
}
// clang-format on

// `key` is one of the keys that not every preset has.
bool Has(const DynamicPreset& preset, std::string_view key) {
  const auto& keys = preset.more_keys;
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::string Bound(double value) { return value > 0 ? ShortestText(value) : "none"; }
std::string Word(bool value) { return value ? "true" : "false"; }

// Names only keys that the preset has.
std::string Constants(const DynamicPreset& preset) {
  const DynamicParameters p = Resolved(preset.parameters);
  if (!preset.common_keys)
    return "init_lg_scale " + ShortestText(p.init_lg_scale) + ", lg_growth " +
           ShortestText(p.lg_growth);
  std::string text = "init_scale " + ShortestText(p.init_scale) + ", growth_factor " +
                     ShortestText(p.growth_factor) + ", backoff_factor " +
                     ShortestText(p.backoff_factor) + ", growth_interval " +
                     std::to_string(p.growth_interval) + ", min_scale " + Bound(p.min_scale) +
                     ", max_scale " + Bound(p.max_scale);
  if (Has(preset, "hysteresis")) text += ", hysteresis " + std::to_string(p.hysteresis);
  if (Has(preset, "consecutive_hysteresis"))
    text += ", consecutive_hysteresis " + Word(p.consecutive_hysteresis);
  if (Has(preset, "tolerance")) text += ", tolerance " + ShortestText(p.tolerance);
  if (Has(preset, "min_window"))
    text += ", min_window " + std::to_string(p.min_window) + ", max_window " +
            std::to_string(p.max_window);
  text += ", error_at_min_scale " + Word(p.error_at_min_scale);
  if (preset.max_retries > 0) text += ", on_overflow retry";
  return text;
}

}  // namespace

const std::vector<DynamicPreset>& DynamicPresets() {
  static const std::vector<DynamicPreset> presets = MakePresets();
  return presets;
}

const DynamicPreset& FindDynamicPreset(std::string_view name) {
  std::string known;
  for (const DynamicPreset& preset : DynamicPresets()) {
    if (preset.name == name) return preset;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw ConfigError("scaling.preset: unknown preset '" + std::string(name) + "', expected one of " +
                    known);
}

std::vector<std::string_view> KeysOf(std::string_view preset) {
  std::vector<std::string_view> keys = {"init_scale",      "growth_factor", "backoff_factor",
                                        "growth_interval", "min_scale",     "max_scale"};
  const DynamicPreset& found = FindDynamicPreset(preset);
  if (!found.common_keys) return found.more_keys;
  keys.insert(keys.end(), found.more_keys.begin(), found.more_keys.end());
  keys.emplace_back("error_at_min_scale");
  return keys;
}

bool HasCommonKeys(std::string_view preset) { return FindDynamicPreset(preset).common_keys; }

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const DynamicPreset& preset : DynamicPresets()) names.emplace_back(preset.name);
  return names;
}

std::vector<std::string> PresetsWith(std::string_view key) {
  std::vector<std::string> names;
  for (const DynamicPreset& preset : DynamicPresets())
    if (Has(preset, key)) names.emplace_back(preset.name);
  return names;
}

bool RetriesSkippedSteps(const Settings& settings) {
  return settings.policy == kDynamic.name && FindDynamicPreset(settings.preset).max_retries > 0;
}

std::vector<std::string> DescribePresets() {
  std::vector<std::string> lines;
  for (const DynamicPreset& preset : DynamicPresets())
    lines.push_back("dynamic, preset " + std::string(preset.name) + ": one global S; " +
                    std::string(preset.meaning) + "; " + std::string(preset.source) + "; " +
                    Constants(preset));
  return lines;
}

DynamicParameters Resolved(DynamicParameters p) {
  if (p.backoff_factor == 0) p.backoff_factor = 1 / p.growth_factor;
  if (p.init_scale == 0) p.init_scale = p.max_scale;
  if (!FindDynamicPreset(p.preset).common_keys) p.init_scale = std::pow(2.0, p.init_lg_scale);
  return p;
}

}  // namespace ada::scaling
