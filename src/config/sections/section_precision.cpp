// The keys of `precision`: formats by role and layer, rounding, overflow.
#include "config/keys/keys.h"
#include "config/sections/sections.h"
#include "io/text.h"
#include "number/tables/table_format.h"

namespace ada::config {
namespace {

// The two of other systems, then P3109's, which RoundingKind has in the same order.
EnumNames<RoundingKind> NamedRoundings() {
  EnumNames<RoundingKind> names = {{"nearest", RoundingKind::kNearest},
                                   {"stochastic", RoundingKind::kStochastic}};
  for (std::size_t i = 0; i < kTableRoundingNames.size(); ++i)
    names.emplace_back(
        kTableRoundingNames[i],
        static_cast<RoundingKind>(static_cast<std::size_t>(RoundingKind::kNearestEven) + i));
  return names;
}
const EnumNames<RoundingKind> kRoundings = NamedRoundings();
const EnumNames<OverflowKind> kOverflows = {
    {"default", OverflowKind::kDefault},
    {"format", OverflowKind::kFormat},
    {"none", OverflowKind::kFormat},
    {"saturate", OverflowKind::kSaturate},
    {"saturate_finite", OverflowKind::kSaturateFinite},
};
const EnumNames<WithinAttention> kWithinAttention = {
    {"rounded", WithinAttention::kRounded},
    {"fp32", WithinAttention::kFp32},
};

// Bits that nothing draws would mislead.
void CheckRandomBits(const PrecisionConfig& precision, const YamlNode& map,
                     const ReadContext& context) {
  const YamlNode* node = map.Find("random_bits");
  bool draws = DrawsSomeBits(precision.rounding);
  for (const PrecisionSwitchConfig& change : precision.schedule)
    draws = draws || (change.rounding && DrawsSomeBits(*change.rounding));
  if (node == nullptr || draws) return;
  context.problems.Add(*node, Join(context.path, "random_bits"),
                       "needs rounding: stochastic_a, stochastic_b or stochastic_c");
}

const EnumNames<PrecisionPreset> kPresets = {{"none", PrecisionPreset::kNone},
                                             {"autocast", PrecisionPreset::kAutocast},
                                             {"autocast_cpu", PrecisionPreset::kAutocastCpu}};

void CheckPreset(const PrecisionConfig& precision, const YamlNode& map,
                 const ReadContext& context) {
  if (precision.preset == PrecisionPreset::kNone) return;
  // The preset gives each kind of layer either `format` or fp32, as torch.autocast does, and no
  // other half-precision format exists there. Roles would contradict it; single layers may differ.
  const std::string name = FormatName(precision.format);
  const YamlNode* format = map.Find("format");
  if (name != "fp16" && name != "bf16" && context.problems.Clean({Join(context.path, "format")})) {
    context.problems.Add(format ? *format : context.key, Join(context.path, "format"),
                         "preset autocast needs fp16 or bf16; got " + name);
  }
  for (const char* role : {"activations", "weights", "gradients"}) {
    const Entry* entry = map.FindEntry(role);
    if (entry == nullptr) continue;
    context.problems.Add(entry->key, Join(context.path, role),
                         "preset autocast decides it; precision.layers may change single layers");
  }
}

}  // namespace

const EnumNames<RoundingKind>& RoundingNames() { return kRoundings; }
Key RandomBitsKey(const RoundingKind& rounding, int& bits) {
  return Integer("random_bits", bits, FromTo(1, 16), "drawn for a value by stochastic_a, _b and _c")
      .WrittenIf([&rounding] { return DrawsSomeBits(rounding); });
}
const EnumNames<OverflowKind>& OverflowNames() { return kOverflows; }
// The same four keys stand in `precision`, in entries of its layers, and in those of its schedule.
std::vector<Key> RoleKeys(RoleFormatsConfig& roles) {
  return {
      FormatKey("activations", roles.activations, "format of the input and of all outputs y")
          .Default("as `format`"),
      FormatKey("weights", roles.weights, "format of the copies of weights that are multiplied")
          .Default("as `format`"),
      FormatKey("gradients", roles.gradients, "format of the gradients dx and dy")
          .Default("as `format`"),
      FormatKey("weight_gradients", roles.weight_gradients,
                "format of dw, rounded after the division by the scale")
          .Default("fp32"),
  };
}

// Only the glob is required: an unset key keeps what an earlier match or `precision` sets.
Section LayerPrecisionSection(LayerPrecisionConfig& layer) {
  Section section;
  section.path = "precision.layers[]";
  section.where = &layer.where;
  section.keys = {
      Text("match", layer.match, "glob on layer names and input; the last match wins, key by key")
          .Required(),
      FormatKey("format", layer.format, "format of activations, weights and gradients"),
  };
  for (Key& key : RoleKeys(layer)) section.keys.push_back(std::move(key));
  section.keys.push_back(Choice("probabilities", layer.probabilities, kWithinAttention,
                                "of attention: as what they are multiplied with the values"));
  section.keys.push_back(Choice("score_gradients", layer.score_gradients, kWithinAttention,
                                "of attention: as what they are multiplied with keys and queries"));
  section.keys.push_back(LayerOperandsKey(layer.operands));
  section.keys.push_back(LayerAccumulateKey(layer.accumulate));
  section.keys.push_back(Choice("recipe", layer.recipe, LayerRecipeNames(),
                                "operands as another program or paper has them; keys of "
                                "`operands` beat it"));
  for (Key& key : section.keys) {
    if (!key.required) key.default_text = "as in `precision`";
    if (key.name == "probabilities" || key.name == "score_gradients")
      key.default_text = "as the layer says";
  }
  section.check = [&layer](const YamlNode& map, const ReadContext& context) {
    FillFromRecipe(layer.recipe.value_or(PrecisionRecipe::kNone), layer.operands, map, context);
    layer.operands.spared.reset();
  };
  return section;
}

// `precision: fp16` is short for a map with `format` only.
Section PrecisionSection(PrecisionConfig& precision) {
  Section section;
  section.path = "precision";
  section.short_key = "format";
  section.keys = {FormatKeyOf(
      "format", [&format = precision.format](const NumberFormat& read) { format = read; },
      [&format = precision.format] { return std::optional(format); },
      "format of activations, multiplied weights and gradients; sums and masters are fp32")};
  section.keys.front().range = TensorFormatWords();
  section.keys.front().section = ExampleSection<NumberFormat>(FormatSection);
  for (Key& key : RoleKeys(precision)) section.keys.push_back(std::move(key));
  section.keys.push_back(
      Entries("layers", precision.layers, &LayerPrecisionSection, "formats of single layers"));
  section.keys.push_back(Choice("rounding", precision.rounding, kRoundings,
                                "how values are rounded: nearest as the format says, by chance "
                                "(in evaluations to nearest), or a mode of IEEE P3109"));
  section.keys.push_back(RandomBitsKey(precision.rounding, precision.random_bits));
  section.keys.push_back(Nested("tensor_scaling", TensorScalingSection(precision.tensor_scaling),
                                "scales of single tensors; `tensor_scaling: delayed` is short"));
  section.keys.push_back(OperandsKey(precision.operands));
  section.keys.push_back(AccumulateKey(precision.accumulate));
  section.keys.push_back(Choice(
      "overflow", precision.overflow, kOverflows,
      "beyond a format's largest value: what the format says (format, none), that largest value, "
      "or that unless it is inf (saturate_finite); default: that value where tensor_scaling gives "
      "a tensor a scale of its own, else what "
      "the format says"));
  section.keys.push_back(
      Choice("preset", precision.preset, kPresets,
             "autocast: the formats that torch.autocast gives each kind of layer on CUDA, with "
             "`format`; "
             "autocast_cpu: on a CPU")
          .WrittenIf([&precision] { return precision.preset != PrecisionPreset::kNone; }));
  for (Key& key : UpdateKeys(precision)) section.keys.push_back(std::move(key));
  section.keys.push_back(
      Choice("recipe", precision.recipe, RecipeNames(),
             "operands as another program or paper has them, with `format` bf16 "
             "unless it is given; keys of `operands` beat it")
          .WrittenIf([&precision] { return precision.recipe != PrecisionRecipe::kNone; }));
  section.keys.push_back(PrecisionScheduleKey(precision));
  section.check = [&precision](const YamlNode& map, const ReadContext& context) {
    CheckPreset(precision, map, context);
    // The recipe comes after the keys of `operands`, which it does not overwrite, and before the
    // check of the schedule.
    FillFromRecipe(precision.recipe, precision.operands, map, context);
    CheckRandomBits(precision, map, context);
    if (precision.recipe != PrecisionRecipe::kNone && !map.Find("format")) precision.format = kBf16;
    CheckPrecisionSchedule(precision, map, context);
  };
  return section;
}

}  // namespace ada::config
