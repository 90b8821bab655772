// The keys of `precision` for what an update keeps between steps: masters and the optimizer's
// state.
#include <algorithm>
#include <bit>

#include "config/recipes.h"
#include "config/sections/sections.h"
#include "io/text.h"

namespace ada::config {
namespace {

using backend::StateStorage;
using backend::UpdateRule;

const EnumNames<UpdateRule::Compensation> kCompensations = {
    {"none", UpdateRule::Compensation::kNone},
    {"kahan", UpdateRule::Compensation::kKahan},
    {"remainder", UpdateRule::Compensation::kRemainder},
};
const EnumNames<UpdateRule::Arithmetic> kArithmetics = {
    {"fp32", UpdateRule::Arithmetic::kFp32},
    {"torch", UpdateRule::Arithmetic::kTorch},
    {"optimi", UpdateRule::Arithmetic::kOptimi},
};
const EnumNames<StateStorage::Scaling> kScalings = {
    {"none", StateStorage::Scaling::kNone},
    {"tensor", StateStorage::Scaling::kTensor},
    {"block", StateStorage::Scaling::kBlock},
};
const EnumNames<OptimizerStateConfig::Map> kMaps = {
    {"linear", OptimizerStateConfig::Map::kLinear},
    {"dynamic", OptimizerStateConfig::Map::kDynamic},
};
const EnumNames<AccumulatedGradientsConfig::Scaling> kSumScalings = {
    {"none", AccumulatedGradientsConfig::Scaling::kNone},
    {"fp8_lm", AccumulatedGradientsConfig::Scaling::kFp8Lm},
};
const Names kLayouts = {"torchao_8bit",      "torchao_4bit", "torchao_fp8",
                        "bitsandbytes_8bit", "te_fp16",      "te_fp8"};

bool IsLayout(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && Contains(kLayouts, node.text);
}

Key RoundingKey(StorageFormatConfig& kept) {
  static const EnumNames<RoundingKind> kKept = {{"nearest", RoundingKind::kNearest},
                                                {"stochastic", RoundingKind::kStochastic}};
  return Choice("rounding", kept.rounding, kKept, "how values are rounded to it");
}

// A name by itself is the format.
Section MastersSection(MastersConfig& masters) {
  Section section;
  section.path = "precision.masters";
  section.short_key = "format";
  section.keys = {
      WithoutTables(FormatKeyOf(
                        "format", [&masters](const NumberFormat& read) { masters.format = read; },
                        [&masters] { return std::optional(masters.format); },
                        "format of its values"))
          .Required(),
      RoundingKey(masters),
      Choice("compensation", masters.compensation, kCompensations,
             "what becomes of the part that rounding takes: kahan adds it to the next update, "
             "remainder keeps it as the 16 low bits of an fp32 master (bf16)")
          .WrittenIf(
              [&masters] { return masters.compensation != UpdateRule::Compensation::kNone; }),
      Choice("arithmetic", masters.arithmetic, kArithmetics,
             "in which an update is computed: fp32, or each operation rounded to `format` in the "
             "order of torch.optim or of torch-optimi")
          .Default("fp32; torch where optimizer_state has the same format; kahan: optimi"),
  };
  section.keys.front().default_text = "fp32";
  return section;
}

Section AccumulatedSection(AccumulatedGradientsConfig& sums) {
  const Names scaled = {"fp8_lm"};
  Section section;
  section.path = "precision.accumulated_gradients";
  section.short_key = "format";
  section.discriminator = "scaling";
  section.choices = {"none", "fp8_lm"};
  section.default_choice = "none";
  section.keys = {
      FormatKeyOf(
          "format", [&sums](const NumberFormat& read) { sums.format = read; },
          [&sums] { return std::optional(sums.format); }, "format of the sums")
          .Required(),
      RoundingKey(sums),
      Choice("scaling", sums.scaling, kSumScalings,
             "fp8_lm: sums of matrices, of micro-batches and of processes, carry a scale; it falls "
             "where too many values saturate (FP8-LM)")
          .WrittenIf([&sums] { return sums.scales(); }),
      Number("saturation_limit", sums.rule.saturation_limit, FromTo(0, 1),
             "share of a sum's values at the format's largest magnitude above which its factor mu "
             "halves")
          .For(scaled),
      Integer("growth_interval", sums.rule.growth_interval, FromTo(1, 1'000'000'000),
              "growths in which mu doubles")
          .For(scaled),
      Integer("interval", sums.rule.interval, FromTo(1, 1'000'000'000),
              "steps from one look at the share to the next")
          .For(scaled),
  };
  section.keys.front().default_text = "fp32";
  section.check = [&sums](const YamlNode& map, const ReadContext& context) {
    if (!sums.scales()) return;
    const auto refuse = [&](const char* key, const char* message) {
      const YamlNode* node = map.Find(key);
      context.problems.Add(node != nullptr ? *node : map, Join(context.path, key), message);
    };
    const NumberFormat& format = sums.format;
    if (format.table != 0 || 1 + format.exponent_bits + format.mantissa_bits > 8 ||
        !format.is_signed)
      refuse("format", "scaling fp8_lm is for formats of at most 8 bits (fp8_e4m3)");
    if (sums.rounding != RoundingKind::kNearest)
      refuse("rounding", "scaling fp8_lm rounds to nearest");
  };
  return section;
}

// The format of all states, or the name of a layout, which stands alone.
Key FormatOrLayoutKey(OptimizerStateConfig& state) {
  Key key = WithoutTables(FormatKeyOf(
      "format", [&state](const NumberFormat& read) { state.format = read; },
      [&state] { return std::optional(state.format); },
      "format of the states that have none of their own, or another program's layout"));
  Names words = key.schemas.front().words;
  words.insert(words.end(), kLayouts.begin(), kLayouts.end());
  key.schemas.front() = WordSchema(words);
  key.range = "a format, " + kLayouts[0];
  for (std::size_t i = 1; i < kLayouts.size(); ++i) key.range += ", " + kLayouts[i];
  key.read = [&state, format = key.read](const YamlNode& node, const ReadContext& context) {
    if (IsLayout(node))
      state.layout = node.text;
    else
      format(node, context);
  };
  key.write = [&state]() -> std::optional<YamlNode> {
    return state.layout.empty() ? FormatNode(state.format) : Scalar(state.layout);
  };
  return key;
}

void CheckState(const OptimizerStateConfig& state, const YamlNode& map,
                const ReadContext& context) {
  const auto refuse = [&](const char* key, const char* message) {
    if (const YamlNode* node = map.Find(key))
      context.problems.Add(*node, Join(context.path, key), message);
  };
  if (!state.layout.empty()) {
    for (const char* key :
         {"rounding", "exp_avg", "exp_avg_sq", "momentum", "scaling", "block", "map"})
      refuse(key, "the layout that `format` names decides it");
    return;
  }
  const bool scaled = state.scaling != StateStorage::Scaling::kNone;
  if (!scaled) refuse("block", "needs scaling: block");
  if (!scaled) refuse("map", "needs scaling: tensor or block");
  if (state.scaling == StateStorage::Scaling::kTensor) refuse("block", "needs scaling: block");
  if (scaled && state.rounding == RoundingKind::kStochastic)
    refuse("rounding", "scaled states are rounded to nearest");
  if (!std::has_single_bit(static_cast<std::uint64_t>(state.block)))
    refuse("block", "must be a power of two");
}

Section StateSection(OptimizerStateConfig& state) {
  const auto given = [&state] { return state.layout.empty(); };
  const auto scaled = [&state] { return state.scaling != StateStorage::Scaling::kNone; };
  Section section;
  section.path = "precision.optimizer_state";
  section.short_key = "format";
  section.keys = {
      FormatOrLayoutKey(state),
      RoundingKey(state).WrittenIf(given),
      WithoutTables(FormatKey("exp_avg", state.exp_avg,
                              "format of Adam's average, and of others of its name"))
          .Default("as `format`"),
      WithoutTables(FormatKey("exp_avg_sq", state.exp_avg_sq,
                              "format of averages of squares and of magnitudes"))
          .Default("as `format`"),
      WithoutTables(FormatKey("momentum", state.momentum, "format of a momentum"))
          .Default("as `format`"),
      Choice("scaling", state.scaling, kScalings,
             "a scale, from the largest magnitude, for each tensor or for each block of values")
          .WrittenIf(scaled),
      Integer("block", state.block, FromTo(16, 16384), "values of a block, a power of two")
          .WrittenIf([&state] { return state.scaling == StateStorage::Scaling::kBlock; }),
      Choice("map", state.map, kMaps,
             "what codes stand for: linear, the format's values; dynamic, for formats of at most 8 "
             "and 4 bits, a map of as many bits, finer near zero")
          .WrittenIf(scaled),
  };
  section.keys.front().default_text = "fp32";
  section.needs_one = {{"format", "exp_avg", "exp_avg_sq", "momentum"},
                       "needs format, exp_avg, exp_avg_sq or momentum"};
  section.check = [&state](const YamlNode& map, const ReadContext& context) {
    CheckState(state, map, context);
  };
  return section;
}

// Whether an operand of some layer or step has a predicted scale.
bool PredictsScales(const PrecisionConfig& precision) {
  static constexpr auto kPredicted = TensorScalingConfig::Kind::kPredicted;
  const auto predicts = [](const OperandsConfig& operands) {
    return (operands.tensor_scaling && operands.tensor_scaling->kind == kPredicted) ||
           std::any_of(operands.by_operand.begin(), operands.by_operand.end(),
                       [](const std::optional<OperandConfig>& operand) {
                         return operand && operand->tensor_scaling == kPredicted;
                       });
  };
  const auto any = [&](const std::vector<LayerPrecisionConfig>& layers) {
    return std::any_of(layers.begin(), layers.end(),
                       [&](const LayerPrecisionConfig& layer) { return predicts(layer.operands); });
  };
  return predicts(precision.operands) || any(precision.layers) ||
         std::any_of(precision.schedule.begin(), precision.schedule.end(),
                     [&](const PrecisionSwitchConfig& change) {
                       return predicts(change.operands) || any(change.layers);
                     });
}

}  // namespace

const std::vector<std::string>& StateLayouts() { return kLayouts; }

std::vector<Key> UpdateKeys(PrecisionConfig& precision) {
  MastersConfig& masters = precision.masters;
  OptimizerStateConfig& state = precision.optimizer_state;
  return {
      Nested("masters", MastersSection(masters),
             "the weights that the optimizer updates; `masters: bf16` is short")
          .WrittenIf([&masters] { return masters.format != kFp32; }),
      Nested("optimizer_state", StateSection(state),
             "momentum, and Adam's averages; `optimizer_state: bf16` is short")
          .WrittenIf([&state] { return !state.plain(); }),
      Nested("accumulated_gradients", AccumulatedSection(precision.accumulated_gradients),
             "the sums of train.accumulate's parts; `accumulated_gradients: bf16` is short")
          .WrittenIf([&precision] { return precision.accumulated_gradients.format != kFp32; }),
  };
}

void CheckUpdate(const OptimizerConfig& optimizer, const PrecisionConfig& precision,
                 const YamlNode& root, Problems& problems) {
  if (!problems.Clean({"precision.masters", "precision.optimizer_state", "optimizer.kind"})) return;
  const YamlNode* section = root.Find("precision");
  const auto refuse = [&](const char* part, const char* key, const char* message) {
    const YamlNode* map = section != nullptr ? section->Find(part) : nullptr;
    const YamlNode* node = map != nullptr ? map->Find(key) : nullptr;
    problems.Add(node != nullptr  ? *node
                 : map != nullptr ? *map
                                  : root,
                 std::string("precision.") + part + (key[0] != 0 ? "." : "") + key, message);
  };
  using Compensation = UpdateRule::Compensation;
  using Kind = UpdateRule::Kind;
  if (PredictsScales(precision) && optimizer.kind != Kind::kAdam && optimizer.kind != Kind::kAdamW)
    refuse("operands", "tensor_scaling",
           "kind predicted rests on the updates of adam and adamw, which the learning rate bounds; "
           "expected one of them as optimizer.kind, or another kind of scale");
  const MastersConfig& masters = precision.masters;
  const bool fp32 = masters.format == kFp32;
  const bool stochastic = masters.rounding == RoundingKind::kStochastic;
  if (masters.compensation == Compensation::kRemainder && masters.format != kBf16)
    refuse("masters", "compensation", "remainder keeps the low bits of a bf16 master");
  if (masters.compensation == Compensation::kKahan && fp32)
    refuse("masters", "compensation", "kahan needs masters in fewer bits than fp32");
  if (masters.compensation != Compensation::kNone && stochastic)
    refuse("masters", "compensation", "needs rounding: nearest");
  const auto arithmetic = masters.arithmetic.value_or(UpdateRule::Arithmetic::kFp32);
  const bool optimi = arithmetic == UpdateRule::Arithmetic::kOptimi ||
                      (!masters.arithmetic && masters.compensation == Compensation::kKahan);
  const auto has_optimi = [](Kind kind) {
    return kind == Kind::kSgd || kind == Kind::kAdam || kind == Kind::kAdamW || kind == Kind::kLion;
  };
  if (arithmetic != UpdateRule::Arithmetic::kFp32 && (fp32 || stochastic))
    refuse("masters", "arithmetic", "needs masters in fewer bits than fp32, rounded to nearest");
  if (optimi && !has_optimi(optimizer.kind))
    refuse("masters", masters.arithmetic ? "arithmetic" : "compensation",
           "torch-optimi's arithmetic, which kahan has unless `arithmetic` says otherwise, is "
           "that of sgd, adam, adamw and lion");
  if (optimizer.kind == Kind::kAdafactor) {
    if (!precision.optimizer_state.plain())
      refuse("optimizer_state", "", "adafactor's averages of rows and columns are fp32");
    if (arithmetic != UpdateRule::Arithmetic::kFp32)
      refuse("masters", "arithmetic", "adafactor is computed in fp32");
  }
}

}  // namespace ada::config
