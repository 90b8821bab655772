// The keys of `precision`: formats by role and layer, rounding, scales of single tensors.
// A format is a name (number/number_format.cpp) or a map of its bits. ReadFormatNode is the one
// reader of both, for these keys as well as for options of the command line.
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

// The message for a format meant for scales where a format for tensors is needed.
constexpr char kUnsigned[] = "a format without sign and zero; a network cannot train in it";

// Names of IEEE P3109, too many for a list: binary8p3se.
constexpr char kP3109[] = "a name of IEEE P3109 (binary8p3se)";
constexpr char kP3109Pattern[] = "^binary[3-8]p[1-8][su][ef]$";

// Formats without a sign and without a zero are for scales, not for tensors.
Names FormatNames(bool tensors_only) {
  Names names;
  for (const NamedFormat& known : NamedFormats()) {
    if (known.format.is_signed || !tensors_only) names.emplace_back(known.name);
  }
  for (const std::string& name : TableFormatNames())
    if (!name.starts_with("binary")) names.push_back(name);
  return names;
}

std::string FormatWords(const Names& names, const char* map) {
  std::string words;
  for (const std::string& name : names) words += name + ", ";
  return words + kP3109 + ", " + map;
}

}  // namespace

// The base of format keys: FormatKey binds it to an optional field, others to one with a default.
Key FormatKeyOf(std::string name, std::function<void(const NumberFormat&)> set,
                std::function<std::optional<NumberFormat>()> get, std::string meaning) {
  Key key = MakeKey(std::move(name), "word or map", std::move(meaning));
  key.range = "a format";
  key.schemas = {WordSchema(FormatNames(true)), P3109Schema(),
                 MapSchema([] { return ExampleSection<NumberFormat>(FormatSection); })};
  key.read = [set = std::move(set)](const YamlNode& node, const ReadContext& context) {
    const std::optional<NumberFormat> format = ReadFormatNode(node, true, {}, context);
    if (format) set(*format);
  };
  key.write = [get = std::move(get)]() -> std::optional<YamlNode> {
    const std::optional<NumberFormat> format = get();
    return format ? std::optional(FormatNode(*format)) : std::nullopt;
  };
  return key;
}

// What is kept between steps, and an accumulator, are no formats with a table.
Key WithoutTables(Key key) {
  Names words = FormatNames(true);
  std::erase_if(words, [](const std::string& name) { return TableFormatNamed(name).has_value(); });
  key.schemas = {WordSchema(words),
                 MapSchema([] { return ExampleSection<NumberFormat>(FormatSection); })};
  key.read = [read = std::move(key.read)](const YamlNode& node, const ReadContext& context) {
    if (node.kind != YamlNode::Kind::kScalar || !TableFormatNamed(node.text))
      return read(node, context);
    context.problems.Add(node, context.path,
                         "'" + node.text +
                             "' is for stored tensors and operands alone (precision.format, roles, "
                             "precision.operands); expected a format of {exponent, mantissa}");
  };
  return key;
}

namespace {

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

// of_operands: theirs may be of this very tensor, too.
// One table for two places. Scales of stored tensors are delayed, because a tensor is rounded as it
// is computed; an operand is there as a whole and can be scaled by its own largest magnitude.
Section TensorScalingSection(TensorScalingConfig& scaling, bool of_operands) {
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
             "delayed: a largest magnitude that is not finite stays in the history, and the scale "
             "rests until it has left it, as Transformer Engine has it; delayed and rule torchao: "
             "power_of_two takes log2 in fp32, which doubles a scale just below a power of two")
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
    if (!map.Find("kind"))
      for (const Entry& entry : map.entries) scaling.given.push_back(entry.key.text);
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

Names TensorFormatNames() { return FormatNames(true); }
ValueSchema P3109Schema() { return TextSchema(kP3109Pattern); }

// A format that has a name is written by it, however it was given.
YamlNode FormatNode(NumberFormat format) {
  if (format.table != 0) return Scalar(FormatName(format));
  for (const NamedFormat& known : NamedFormats()) {
    if (known.format == format) return Scalar(std::string(known.name));
  }
  return WriteSection(FormatSection(format));
}

const EnumNames<RoundingKind>& RoundingNames() { return kRoundings; }
Key RandomBitsKey(const RoundingKind& rounding, int& bits) {
  return Integer("random_bits", bits, FromTo(1, 16), "drawn for a value by stochastic_a, _b and _c")
      .WrittenIf([&rounding] { return DrawsSomeBits(rounding); });
}
const EnumNames<OverflowKind>& OverflowNames() { return kOverflows; }
const EnumNames<TensorScalingConfig::Kind>& OperandScalingNames() { return kOperandScalings; }

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
    if (layer.recipe) FillFromRecipe(*layer.recipe, layer.operands);
    layer.operands.spared.reset();
    CheckScalingKind(layer.operands, map, context);
  };
  return section;
}

Section OperandScalingSection(TensorScalingConfig& scaling) {
  return TensorScalingSection(scaling, /*of_operands=*/true);
}

Key FormatKey(std::string name, std::optional<NumberFormat>& field, std::string meaning) {
  return FormatKeyOf(
      std::move(name), [&field](const NumberFormat& format) { field = format; },
      [&field] { return field; }, std::move(meaning));
}

// The fields are those of NumberFormat. What a combination of them must be, such as room for a NaN,
// says RefuseFormat in number/number_format.h.
Section FormatSection(NumberFormat& format) {
  Section section;
  section.path = "precision.format";
  section.is_value = true;
  section.keys = {
      Integer("exponent", format.exponent_bits, FromTo(1, 8), "bits of the exponent").Required(),
      Integer("mantissa", format.mantissa_bits, FromTo(0, 23),
              "stored bits of the mantissa, without the implicit one")
          .Required(),
      Integer("bias", format.bias, FromTo(-300, 300), "what is subtracted from the exponent")
          .Default("2^(exponent - 1) - 1"),
      Switch("has_inf", format.has_inf,
             "the top exponent means inf and NaN; false: it holds numbers"),
      Switch("has_nan", format.has_nan, "there is a NaN; false: numbers only, which saturate"),
      Switch("negative_zero", format.has_negative_zero,
             "there is a -0; false: its code is the NaN"),
      Switch("saturate", format.saturate,
             "beyond the largest value: the largest; false: inf, or NaN where there is no inf"),
      Switch("signed", format.is_signed,
             "false: positive numbers only, no zero (for `convert` and `inspect`)"),
  };
  section.check = [&format](const YamlNode& map, const ReadContext& context) {
    if (!context.problems.Clean({Join(context.path, "exponent"), Join(context.path, "mantissa"),
                                 Join(context.path, "bias")})) {
      return;
    }
    // The bias depends on the exponent's bits, so its default is known only after they were read.
    if (!map.Find("bias")) format.bias = (1 << (format.exponent_bits - 1)) - 1;
    const std::string refusal = RefuseFormat(format);
    if (!refusal.empty()) context.problems.Add(map, context.path, refusal);
  };
  return section;
}

std::optional<NumberFormat> ReadFormatNode(const YamlNode& node, bool tensors_only,
                                           const Names& also, const ReadContext& context) {
  // A block-scaled format is a known word in a wrong place, which deserves a better message than
  // that of an unknown one.
  if (const std::string misplaced = BlockFormatMisplaced(node); !misplaced.empty()) {
    context.problems.Add(node, context.path, misplaced);
    return std::nullopt;
  }
  if (node.kind == YamlNode::Kind::kMap) {
    NumberFormat custom;
    const std::size_t problems = context.problems.count();
    ReadSection(node, FormatSection(custom), context);
    if (context.problems.count() > problems) return std::nullopt;
    if (custom.is_signed || !tensors_only) return custom;
    context.problems.Add(node, context.path, kUnsigned);
    return std::nullopt;
  }
  const std::string text = node.kind == YamlNode::Kind::kScalar ? node.text : "";
  for (const NamedFormat& known : NamedFormats()) {
    if (known.name != text) continue;
    if (known.format.is_signed || !tensors_only) return known.format;
    context.problems.Add(node, context.path, "'" + text + "': " + kUnsigned);
    return std::nullopt;
  }
  if (const std::optional<NumberFormat> table = TableNumberFormatNamed(text)) return table;
  if (text.starts_with("binary")) {
    context.problems.Add(
        node, context.path,
        "'" + text +
            "': no format of IEEE P3109; expected binaryKpPse, .. sf, .. ue or .. uf with K "
            "of 3 to 8 bits and P of 1 to K - 1 (unsigned: K)");
    return std::nullopt;
  }
  // Another program's name beats a similar one of ours: float8_e4m3 is near fp8_e4m3 and is not it.
  const std::string foreign = ForeignFormatHint(text);
  Names names = FormatNames(tensors_only);
  names.insert(names.end(), also.begin(), also.end());
  const std::string nearest = foreign.empty() ? NearestName(text, names) : std::string();
  const bool only_plain = also.empty();
  if (const std::string meant = BlockFormatMeant(text, foreign);
      only_plain && !meant.empty() && !Contains(names, nearest)) {
    context.problems.Add(node, context.path, "'" + text + "' is no plain format; " + meant);
    return std::nullopt;
  }
  const char* map = "or a map such as {exponent: 5, mantissa: 10}";
  context.problems.Add(
      node, context.path,
      Expected(FormatWords(names, map), node) +
          (nearest.empty() ? AsEnding(foreign) : "; did you mean '" + nearest + "'?"));
  return std::nullopt;
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
  section.keys.front().range = FormatWords(FormatNames(true), "{exponent: E, mantissa: M, ...}");
  section.keys.front().section = ExampleSection<NumberFormat>(FormatSection);
  for (Key& key : RoleKeys(precision)) section.keys.push_back(std::move(key));
  section.keys.push_back(
      Entries("layers", precision.layers, &LayerPrecisionSection, "formats of single layers"));
  section.keys.push_back(Choice("rounding", precision.rounding, kRoundings,
                                "how values are rounded: nearest as the format says, by chance "
                                "(in evaluations to nearest), or a mode of IEEE P3109"));
  section.keys.push_back(RandomBitsKey(precision.rounding, precision.random_bits));
  section.keys.push_back(Nested("tensor_scaling",
                                TensorScalingSection(precision.tensor_scaling, false),
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
    FillFromRecipe(precision.recipe, precision.operands);
    CheckScalingKind(precision.operands, map, context);
    CheckRandomBits(precision, map, context);
    if (precision.recipe != PrecisionRecipe::kNone && !map.Find("format")) precision.format = kBf16;
    CheckPrecisionSchedule(precision, map, context);
  };
  return section;
}

}  // namespace ada::config
