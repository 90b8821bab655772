// The hints are YAML that this program reads. The words are those of PyTorch Lightning, Keras,
// Composer, Hugging Face, apex, DeepSpeed, mmengine and Transformer Engine.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "config/keys/foreign_names.h"
#include "config/keys/scalars.h"
#include "io/text.h"

namespace ada::config {
namespace {

constexpr std::string_view kDynamicScaling = "scaling: {policy: dynamic}";
constexpr std::string_view kAsFp32 = "that is precision: {format: fp32}";
constexpr std::string_view kAutocastFp16 =
    "that is precision: {format: fp16, preset: autocast} with scaling: {policy: dynamic}";
constexpr std::string_view kAutocastBf16 = "that is precision: {format: bf16, preset: autocast}";
// apex' O2: all layers in fp16, masters in fp32.
constexpr std::string_view kFp16Layers =
    "that is precision: {format: fp16} with scaling: {policy: dynamic}";
constexpr std::string_view kAllFp16 =
    "that is precision: {format: fp16, masters: fp16, optimizer_state: fp16}";
constexpr std::string_view kAllBf16 =
    "that is precision: {format: bf16, masters: bf16, optimizer_state: bf16}";
// Transformer Engine's recipe DelayedScaling, by its `fp8_format`.
constexpr std::string_view kDelayedHybrid =
    "that is precision: {format: fp8_e4m3, gradients: fp8_e5m2, tensor_scaling: {kind: delayed, "
    "history: 16}}";
constexpr std::string_view kDelayedE4M3 =
    "that is precision: {format: fp8_e4m3, tensor_scaling: {kind: delayed, history: 16}}";
constexpr std::string_view kDelayedE5M2 =
    "that is precision: {format: fp8_e5m2, tensor_scaling: {kind: delayed, history: 16}}";
constexpr std::string_view kDelayedHistory =
    "that is history in precision: {tensor_scaling: {kind: delayed, history: 16}}";
constexpr std::string_view kDelayedAmax =
    "that is amax in precision: {tensor_scaling: {kind: delayed, amax: max}}";
constexpr std::string_view kDelayedMargin =
    "that is margin in precision: {tensor_scaling: {kind: delayed, margin: 0}}";
// Transformer Engine's other recipes.
constexpr std::string_view kCurrentScaling = "that is precision: {recipe: te_fp8_current}";
constexpr std::string_view kMxfp8 =
    "that is precision: {format: bf16, operands: mxfp8_e4m3}; recipe: te_mxfp8 rounds its scales "
    "as Transformer Engine does";
constexpr std::string_view kBlockwise =
    "that is precision: {format: bf16, operands: fp8_block128}; recipe: deepseek_v3 has weights "
    "in squares";
constexpr std::string_view kNvfp4 =
    "that is precision: {format: bf16, operands: nvfp4}; recipe: te_nvfp4 rounds and transforms "
    "as Transformer Engine does";
constexpr std::string_view kMxfp4 = "that is precision: {format: bf16, operands: mxfp4}";
constexpr std::string_view kAnyFormat = "did you mean 'precision.format'?";

// Each line of a table: plain words, and the text that says what they mean here.
struct Meaning {
  std::string_view words;  // with blanks between
  std::string_view sections;
};

// Words of Lightning, Keras, Composer and Hugging Face for the whole way of training.
const Meaning kPolicies[] = {
    {"16 16_mixed mixed_float16 mixed amp fp16_mixed mixed_fp16 amp_fp16", kAutocastFp16},
    {"bf16_mixed mixed_bfloat16 mixed_bf16 amp_bf16", kAutocastBf16},
    {"16_true fp16_true pure_fp16", kAllFp16},
    {"bf16_true pure_bf16", kAllBf16},
    {"hybrid transformer_engine transformer_engine_float16 fp8_hybrid amp_fp8 fp8_mixed "
     "float8_from_float32 float8_from_bfloat16 float8_from_mixed_bfloat16 "
     "float8_from_mixed_float16",
     kDelayedHybrid},
    {"o1", kAutocastFp16},
    {"o2", kFp16Layers},
    {"o3", kAllFp16},
    {"no o0", kAsFp32},
};
// Formats and recipes of FP8, where a key for mixed precision has them.
const Meaning kFp8Words[] = {
    {"e4m3 fp8_e4m3 float8_e4m3fn float8_e4m3", kDelayedE4M3},
    {"e5m2 fp8_e5m2 float8_e5m2", kDelayedE5M2},
    {"fp8 float8 te delayed delayedscaling", kDelayedHybrid},
    {"current tensorwise float8currentscaling", kCurrentScaling},
    {"mxfp8 mxfp8_e4m3 mxfp8blockscaling", kMxfp8},
    {"blockwise block float8blockscaling", kBlockwise},
    {"nvfp4 nvfp4blockscaling", kNvfp4},
    {"mxfp4", kMxfp4},
};
constexpr std::string_view kOff = "false off no none null disabled 0 fp32 float32 float 32 full";
// The format in which matmuls are computed, if autocast chooses by layer.
const Meaning kMixedTypes[] = {
    {"fp16 float16 half", kAutocastFp16},
    {"bf16 bfloat16", kAutocastBf16},
};
// The format in which everything is stored.
const Meaning kWholeTypes[] = {
    {"fp16 float16 half", kAllFp16},
    {"bf16 bfloat16", kAllBf16},
};

// Keys with the same words. `otherwise` is the hint for any other value, such as `true`.
struct KeyFamily {
  std::string_view keys;
  std::span<const Meaning> words;
  std::string_view otherwise;
};
const KeyFamily kKeyFamilies[] = {
    {"amp use_amp native_amp apex_amp fp16 use_fp16 fp16_enabled mixed_precision autocast "
     "use_autocast enable_amp grad_scaler amp_dtype amp_impl autocast_dtype mixed_precision_dtype",
     kMixedTypes, kAutocastFp16},
    {"bf16 use_bf16 bf16_enabled bfloat16", kMixedTypes, kAutocastBf16},
    {"opt_level amp_level amp_opt_level apex_opt_level fp16_opt_level", kMixedTypes, kAutocastFp16},
    {"torch_dtype model_dtype params_dtype param_dtype dtype_policy", kWholeTypes, kAnyFormat},
    {"half half_precision", kWholeTypes, kAllFp16},
    {"fp8 fp8_format fp8_recipe fp8_hybrid use_fp8 fp8_autocast fp8_enabled enable_fp8 float8",
     kMixedTypes, kDelayedHybrid},
    {"fp8_e4m3", {}, kDelayedE4M3},
    {"mxfp8 use_mxfp8", {}, kMxfp8},
    {"nvfp4 use_nvfp4 fp4 fp4_recipe fp4_format", {}, kNvfp4},
    {"mxfp4 use_mxfp4", {}, kMxfp4},
};
// Where these are keys of a map, they say what the map's own key would.
// Asked in this order, so the first that the map has decides.
constexpr std::string_view kWithin[] = {"opt_level", "dtype",  "amp_dtype", "precision",
                                        "recipe",    "format", "fp8_format"};

bool Among(std::string_view words, const std::string& word) {
  return (" " + std::string(words) + " ").find(" " + word + " ") != std::string::npos;
}

std::string SectionsOf(std::span<const Meaning> table, const std::string& word) {
  for (const Meaning& known : table)
    if (Among(known.words, word)) return std::string(known.sections);
  return "";
}

const YamlNode* FindPlain(const YamlNode& map, std::string_view name) {
  for (const Entry& entry : map.entries)
    if (PlainName(entry.key.text) == name) return &entry.value;
  return nullptr;
}

// A value as one plain word: "null" of nothing, empty of lists and maps.
std::string WordOf(const YamlNode& value) {
  if (value.kind == YamlNode::Kind::kNull) return "null";
  return value.kind == YamlNode::Kind::kScalar ? WithoutModule(PlainName(value.text)) : "";
}

// The hint for a value: for a map its switch `enabled`, or the first key with a format or level
// (kWithin); for a word whether it disables precision, then the family's words, then those of all.
std::string OfValue(const KeyFamily& family, const YamlNode& value) {
  if (value.kind == YamlNode::Kind::kMap) {
    const YamlNode* enabled = FindPlain(value, "enabled");
    if (enabled && Among(kOff, WordOf(*enabled))) return std::string(kAsFp32);
    for (const std::string_view name : kWithin)
      if (const YamlNode* inner = FindPlain(value, name)) return OfValue(family, *inner);
    return std::string(family.otherwise);
  }
  const std::string word = WordOf(value);
  if (Among(kOff, word)) return std::string(kAsFp32);
  for (const std::span<const Meaning> table :
       {family.words, std::span<const Meaning>(kPolicies), std::span<const Meaning>(kFp8Words)})
    if (const std::string found = SectionsOf(table, word); !found.empty()) return found;
  return std::string(family.otherwise);
}

// A scale that stays, or "dynamic"; DeepSpeed's 0 is that, too.
std::string OfLossScale(const YamlNode& value) {
  double scale = 0;
  const bool stays =
      value.kind == YamlNode::Kind::kScalar && ReadNumber(value, Above(0), scale).empty();
  return stays ? "scaling: {policy: fixed, scale: " + NumberText(scale) + "}"
               : std::string(kDynamicScaling);
}

// mmengine's wrapper of an optimizer: its type, dtype and loss_scale say how it trains.
std::string OfOptimWrapper(const YamlNode& value) {
  const YamlNode* type = FindPlain(value, "type");
  const std::string name = type ? WordOf(*type) : "";
  std::string sections =
      name == "optimwrapper" ? std::string(kAsFp32) : OfValue(kKeyFamilies[0], value);
  const YamlNode* loss_scale = FindPlain(value, "loss_scale");
  if (const std::size_t at = sections.find(kDynamicScaling); loss_scale && at != std::string::npos)
    sections.replace(at, kDynamicScaling.size(), OfLossScale(*loss_scale));
  return "its optimizer is the section optimizer, clip_grad is train.clip_norm, "
         "accumulative_counts is train.accumulate; " +
         (name.empty() ? "AmpOptimWrapper" : type->text) + " is " +
         sections.substr(std::string_view("that is ").size());
}

// The exponent of a first scale, as DeepSpeed has it.
std::string OfScalePower(const YamlNode& value) {
  long long power = 0;
  if (value.kind != YamlNode::Kind::kScalar || !ReadInteger(value, FromTo(0, 62), power).empty())
    return "init_scale is the scale itself, 2 to this power";
  return "that is init_scale, 2 to this power, in scaling: {policy: dynamic, init_scale: " +
         std::to_string(std::int64_t{1} << power) + "}";
}

}  // namespace

std::string PlainName(const std::string& name) {
  std::string plain;
  for (const char c : name) plain += c == '-' ? '_' : LowerCase(c);
  return plain;
}

std::string WithoutModule(const std::string& plain) {
  const std::size_t dot = plain.rfind('.');
  return dot == std::string::npos ? plain : plain.substr(dot + 1);
}

std::string PrecisionOfWord(const std::string& plain_word) {
  return SectionsOf(kPolicies, plain_word);
}

std::string PrecisionOfKey(const std::string& plain_name, const YamlNode& value) {
  if (plain_name == "optim_wrapper") return OfOptimWrapper(value);
  if (plain_name == "initial_scale_power") return OfScalePower(value);
  if (plain_name == "loss_scale" || plain_name == "loss_scaling")
    return "that is " + OfLossScale(value);
  if (Among("amax_history_len fp8_amax_history_len amax_history", plain_name))
    return std::string(kDelayedHistory);
  if (Among("amax_compute_algo fp8_amax_compute_algo", plain_name))
    return std::string(kDelayedAmax);
  if (plain_name == "fp8_margin") return std::string(kDelayedMargin);
  for (const KeyFamily& family : kKeyFamilies)
    if (Among(family.keys, plain_name)) return OfValue(family, value);
  return "";
}

}  // namespace ada::config
