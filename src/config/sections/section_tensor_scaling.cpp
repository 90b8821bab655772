// The keys of `tensor_scaling`, of stored tensors and of operands.
#include "config/keys/keys.h"
#include "config/sections/sections.h"

namespace ada::config {
namespace {

using scaling::Amax;

const EnumNames<Amax> kAmaxes = {{"max", Amax::kMax}, {"most_recent", Amax::kMostRecent}};
const EnumNames<TensorScalingConfig::Kind> kTensorScalings = {
    {"none", TensorScalingConfig::Kind::kNone},
    {"delayed", TensorScalingConfig::Kind::kDelayed},
};
const EnumNames<TensorScalingConfig::Kind> kOperandScalings = {
    {"none", TensorScalingConfig::Kind::kNone},
    {"current", TensorScalingConfig::Kind::kCurrent},
    {"row", TensorScalingConfig::Kind::kRow},
    {"delayed", TensorScalingConfig::Kind::kDelayed},
    {"static", TensorScalingConfig::Kind::kStatic},
    {"adaptive", TensorScalingConfig::Kind::kAdaptive},
    {"predicted", TensorScalingConfig::Kind::kPredicted},
};
const EnumNames<scaling::ScaleSystem> kScaleSystems = {
    {"te", scaling::ScaleSystem::kTe},
    {"torchao", scaling::ScaleSystem::kTorchao},
};

// Fixed scales by tensor.
Section StaticScalesSection(TensorScalingConfig::StaticScales& scales) {
  const Range range = FromTo(1e-30, 1e30);
  Section section;
  section.path = "precision.operands.tensor_scaling.values";
  section.keys = {
      Number("x", scales.x, range, "by what x is multiplied before it is rounded"),
      Number("w", scales.w, range, "the same of w"),
      Number("dy", scales.dy, range, "the same of dy, whatever S it carries"),
  };
  // Attention's operands follow.
  const auto add = [&](const char* name, double& scale, const char* meaning) {
    section.keys.push_back(
        Number(name, scale, range, meaning).WrittenIf([&scale] { return scale != 1; }));
  };
  add("q", scales.q, "the same of queries in attention");
  add("k", scales.k, "the same of keys");
  add("v", scales.v, "the same of values");
  add("p", scales.p, "the same of probabilities");
  add("ds", scales.ds, "the same of gradients of scores, whatever S they carry");
  return section;
}

// One table for two places. Scales of stored tensors are delayed, because a tensor is rounded as it
// is computed; an operand is there as a whole and can be scaled by its own largest magnitude.
Section SectionOf(TensorScalingConfig& scaling, bool of_operands) {
  const Names delayed = {"delayed"}, own = {"current", "row"},
              computed = {"current", "row", "delayed", "predicted"},
              scaled = {"current", "row", "delayed", "static", "predicted"};
  Section section;
  section.path = of_operands ? "precision.operands.tensor_scaling" : "precision.tensor_scaling";
  section.discriminator = "kind";
  section.choices =
      of_operands ? Names{"none", "current", "row", "delayed", "static", "adaptive", "predicted"}
                  : Names{"none", "delayed"};
  section.short_key = "kind";
  section.keys = {
      Choice("kind", scaling.kind, of_operands ? kOperandScalings : kTensorScalings,
             of_operands ? "current: a scale from the largest magnitude of this very tensor; row: "
                           "one for each row along the sum; delayed: from the magnitudes of its "
                           "last steps; static: `values`; adaptive: the scale that a tensor of "
                           "nvfp4 has beside its blocks', chosen by exact_range; predicted: of "
                           "weights, from their largest magnitude every `interval` steps and the "
                           "learning rates since (adam, adamw); current of other operands"
                         : "delayed: a scale per tensor from the largest magnitudes of its last "
                           "steps"),
      Integer("history", scaling.history, FromTo(1, 1'000'000), "steps that are remembered")
          .For(delayed),
      Number("margin", scaling.margin, FromTo(-64, 64), "the scale is divided by 2^margin")
          .For(of_operands ? computed : delayed),
      Choice("amax", scaling.amax, kAmaxes,
             "the largest magnitude of the whole history, or of its last step")
          .For(delayed),
      Switch("power_of_two", scaling.power_of_two, "round the scale down to a power of two")
          .For(of_operands ? scaled : delayed),
      Switch("reference", scaling.reference,
             "delayed: magnitudes that are not finite stay in the history, and the scale rests "
             "until they leave it (Transformer Engine); delayed and rule torchao: power_of_two "
             "takes log2 in fp32, which doubles a scale just below a power of two")
          .For(of_operands ? computed : delayed),
  };
  section.keys.front().default_text = "none";
  if (!of_operands) {
    section.keys.front().required = true;
  } else {
    section.keys.front().default_text = "none; with a recipe: its own";
    section.keys.push_back(
        Choice("rule", scaling.system, kScaleSystems,
               "whose scale of a largest magnitude: te (1 where it is 0 or not finite), torchao "
               "(magnitudes below 1e-12 count as 1e-12; inf gives 0)")
            .For(own));
    section.keys.push_back(Number("underflow_target", scaling.adaptive.underflow_target,
                                  Inside(0, 1),
                                  "share of the values other than zero that the scales of blocks "
                                  "may lose")
                               .For({"adaptive"}));
    section.keys.push_back(Number("saturation_limit", scaling.adaptive.saturation_limit,
                                  FromTo(0, 1), "share of them that may saturate for it")
                               .For({"adaptive"}));
    section.keys.push_back(Integer("interval", scaling.interval, FromTo(1, 1'000'000),
                                   "steps from one measurement of a weight to the next")
                               .For({"predicted"}));
    section.keys.push_back(Nested("values", StaticScalesSection(scaling.values), "fixed scales")
                               .For({"static"})
                               .RequiredFor({"static"}));
  }
  section.check = [&scaling](const YamlNode& map, const ReadContext& context) {
    scaling.lacks_kind = !map.Find("kind");
    using Kind = TensorScalingConfig::Kind;
    const bool by_magnitude = scaling.kind == Kind::kCurrent || scaling.kind == Kind::kRow ||
                              scaling.kind == Kind::kPredicted;
    if (by_magnitude && scaling.reference && scaling.system == scaling::ScaleSystem::kTe)
      context.problems.Add(*map.Find("reference"), Join(context.path, "reference"),
                           "is for kind delayed and for rule torchao");
    // A power of two times 2^-margin is one only for whole margins.
    const auto whole = static_cast<double>(static_cast<int>(scaling.margin));
    if (!scaling.power_of_two || scaling.margin == whole) return;
    context.problems.Add(*map.Find("margin"), Join(context.path, "margin"),
                         "must be a whole number where power_of_two is true");
  };
  return section;
}

}  // namespace

const EnumNames<TensorScalingConfig::Kind>& OperandScalingNames() { return kOperandScalings; }

Section TensorScalingSection(TensorScalingConfig& scaling) {
  return SectionOf(scaling, /*of_operands=*/false);
}
Section OperandScalingSection(TensorScalingConfig& scaling) {
  return SectionOf(scaling, /*of_operands=*/true);
}

}  // namespace ada::config
