// The keys of `precision.operands`: what each matmul rounds once more when it reads its operands.
// There are six operands (io/tensor_names.h), and three ways to set them: by tensor (`x` in both
// of its matmuls), by matmul (`dw: {x: ..., dy: ...}`), or all at once (`operands: mxfp8_e4m3`).
// The more specific key wins; OperandsConfig, and what is written, always has all six. Those of
// attention (`attention: {q: ..., p: ...}`) are set by tensor, or all at once.
#include <algorithm>
#include <array>
#include <limits>

#include "config/sections/sections.h"
#include "io/text.h"

namespace ada::config {
namespace {

constexpr char kNone[] = "none", kAsForward[] = "as_forward";
constexpr char kFormatMeaning[] = "format that it is rounded to; none: it is taken as it is stored";

// Unset: the key is missing; a set operand without a format: it is used as it is stored.
using Field = std::optional<OperandConfig>;

// A map that is a format itself.
// Format and operand are both maps; a format has one of its own keys and no key `format`.
bool IsFormatMap(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kMap && !node.Find("format") &&
         (node.Find("exponent") || node.Find("mantissa") || node.Find("element"));
}

// The operands dx.w and dw.x may follow forward.w and forward.x, whose tensors they share.
enum class Follows { kNever, kMay };

std::vector<ValueSchema> FormatSchemas(Follows follows = Follows::kNever) {
  Names words = AnyFormatNames();
  words.insert(words.begin(), kNone);
  if (follows == Follows::kMay) words.insert(words.begin() + 1, kAsForward);
  std::vector<ValueSchema> schemas = AnyFormatMaps();
  schemas.push_back(WordSchema(words));
  schemas.push_back(P3109Schema());
  return schemas;
}

void ReadFormat(const YamlNode& node, const ReadContext& context, Follows follows,
                OperandConfig& operand) {
  operand.as_forward = false;
  if (IsWord(node, kAsForward)) {
    operand.format.reset();
    operand.as_forward = follows == Follows::kMay;
    if (!operand.as_forward)
      context.problems.Add(node, context.path,
                           "as_forward is for operands.dx.w and operands.dw.x, whose tensors the "
                           "forward product takes as well");
  } else if (IsWord(node, kNone)) {
    operand.format.reset();
  } else {
    operand.format = ReadAnyFormatNode(node, true, context);
  }
}

YamlNode FormatOrWord(const OperandConfig& operand) {
  if (operand.format) return AnyFormatNode(*operand.format);
  return Scalar(operand.as_forward ? kAsForward : kNone);
}

Section SectionOfOperand(OperandConfig& operand, Follows follows) {
  Key format = MakeKey("format", "word or map", kFormatMeaning);
  format.range = "none or a format";
  format.schemas = FormatSchemas(follows);
  format.read = [&operand, follows](const YamlNode& node, const ReadContext& context) {
    ReadFormat(node, context, follows, operand);
  };
  format.write = [&operand]() -> std::optional<YamlNode> { return FormatOrWord(operand); };
  Section section;
  // One table serves all operands, so its path is that of an example.
  section.path = "precision.operands.x";
  section.short_key = "format";
  section.keys = {
      std::move(format.Required()),
      Choice("rounding", operand.rounding, RoundingNames(), "how values are rounded to it"),
      RandomBitsKey(operand.rounding, operand.random_bits),
      Choice("tensor_scaling", operand.tensor_scaling, OperandScalingNames(),
             "the kind of its scales, where it is a plain format"),
      Choice("overflow", operand.overflow, OverflowNames(),
             "beyond the largest value of a plain format"),
  };
  section.keys.front().default_text = "as it is stored";
  section.keys[3].default_text = "as `operands.tensor_scaling`";
  section.keys[4].default_text = "as `precision.overflow`";
  section.check = [&operand](const YamlNode& map, const ReadContext& context) {
    for (const char* key : {"rounding", "random_bits", "tensor_scaling", "overflow"})
      if (operand.as_forward && map.Find(key))
        context.problems.Add(*map.Find(key), Join(context.path, key),
                             "as_forward takes what the forward product's operand says");
    if (map.Find("random_bits") && !DrawsSomeBits(operand.rounding))
      context.problems.Add(*map.Find("random_bits"), Join(context.path, "random_bits"),
                           "needs rounding: stochastic_a, stochastic_b or stochastic_c");
    const auto* block = operand.format ? std::get_if<BlockFormat>(&*operand.format) : nullptr;
    if (block != nullptr && operand.rounding != RoundingKind::kNearest &&
        operand.rounding != RoundingKind::kStochastic)
      context.problems.Add(*map.Find("rounding"), Join(context.path, "rounding"),
                           "elements of blocks are rounded by nearest or stochastic alone");
    if (block == nullptr || operand.rounding != RoundingKind::kStochastic) return;
    if (block->rule == BlockRule::kFourOverSix)
      context.problems.Add(*map.Find("rounding"), Join(context.path, "rounding"),
                           "rule four_over_six compares values rounded to nearest");
    if (block->rule == BlockRule::kHiFloat4)
      context.problems.Add(*map.Find("rounding"), Join(context.path, "rounding"),
                           "hifloat4 rounds to nearest, ties away from zero");
  };
  return section;
}

Section OperandSection(OperandConfig& operand) {
  return SectionOfOperand(operand, Follows::kNever);
}
Section FollowingSection(OperandConfig& operand) {
  return SectionOfOperand(operand, Follows::kMay);
}

std::optional<OperandConfig> ReadOperand(const YamlNode& node, const ReadContext& context,
                                         Follows follows = Follows::kNever) {
  OperandConfig operand;
  const std::size_t problems = context.problems.count();
  if (node.kind == YamlNode::Kind::kMap && !IsFormatMap(node))
    ReadSection(node, SectionOfOperand(operand, follows), context);
  else
    ReadFormat(node, context, follows, operand);
  return context.problems.count() == problems ? std::optional(operand) : std::nullopt;
}

// The short form, if it is sufficient.
YamlNode OperandNode(OperandConfig operand) {
  if (operand.rounding != RoundingKind::kNearest || operand.tensor_scaling || operand.overflow)
    return WriteSection(OperandSection(operand));
  return FormatOrWord(operand);
}

// set: called with the value that was read; get: returns the value to write. A key by tensor is
// read into a variable of the section's reading, a key by operand into its field.
Key OperandKey(const char* name, std::function<void(const OperandConfig&)> set,
               std::function<Field()> get, const char* meaning, Follows follows = Follows::kNever) {
  Key key = MakeKey(name, "word or map", meaning);
  key.range = follows == Follows::kMay ? "none, as_forward, a format or {format, rounding, ...}"
                                       : "none, a format or {format, rounding, ...}";
  key.default_text = "as it is stored";
  key.section = follows == Follows::kMay ? ExampleSection<OperandConfig>(FollowingSection)
                                         : ExampleSection<OperandConfig>(OperandSection);
  key.schemas = AnyFormatMaps();
  key.schemas.push_back(MapSchema([inner = key.section] { return inner; }));
  key.read = [set = std::move(set), follows](const YamlNode& node, const ReadContext& context) {
    if (const Field operand = ReadOperand(node, context, follows)) set(*operand);
  };
  key.write = [get = std::move(get)]() -> std::optional<YamlNode> {
    const Field operand = get();
    return operand ? std::optional(OperandNode(*operand)) : std::nullopt;
  };
  return key;
}

// One of the six.
Key ExactKey(const char* name, Field& field, const char* meaning, Follows follows) {
  return OperandKey(
      name, [&field](const OperandConfig& operand) { field = operand; }, [&field] { return field; },
      meaning, follows);
}

// One tensor in both of its matmuls, or all of them; a matmul's own key takes precedence. It writes
// nothing: the check of the section has put what it read into the six fields.
Key GeneralKey(const char* name, const std::shared_ptr<Field>& field, const char* meaning) {
  return OperandKey(
      name, [field](const OperandConfig& operand) { *field = operand; }, [] { return Field(); },
      meaning);
}

// An operand's key within a group.
struct Member {
  const char* name;
  Field* field;
  const char* meaning;
};
// The operands of one product, or of attention: a word or a format is of all of them.
Key GroupKey(const char* name, const std::vector<Member>& members, const char* meaning,
             const char* range) {
  Section section;
  section.path = std::string("precision.operands.") + name;
  for (const Member& member : members) {
    const std::string operand = std::string(name) + "." + member.name;
    const bool may_follow = operand == "dx.w" || operand == "dw.x";
    section.keys.push_back(ExactKey(member.name, *member.field, member.meaning,
                                    may_follow ? Follows::kMay : Follows::kNever));
  }
  Key key = Nested(name, std::move(section), meaning);
  key.type = "word or map";
  key.range = range;
  const std::vector<ValueSchema> formats = FormatSchemas();
  key.schemas.insert(key.schemas.begin(), formats.begin(), formats.end());
  key.read = [members, read = key.read](const YamlNode& node, const ReadContext& context) {
    if (node.kind == YamlNode::Kind::kMap && !IsFormatMap(node)) return read(node, context);
    if (const Field all = ReadOperand(node, context))
      for (const Member& member : members) *member.field = all;
  };
  return key.WrittenIf([members] {
    return std::any_of(members.begin(), members.end(),
                       [](const Member& member) { return member.field->has_value(); });
  });
}

// A word is read as `kind` by the key of the section itself, which also refuses wrong words.
Key ScalingKey(std::optional<TensorScalingConfig>& scaling) {
  Key key = OptionalMap("tensor_scaling", scaling, OperandScalingSection,
                        "scales of operands of plain formats; `tensor_scaling: current` is short");
  key.read = [&scaling, read_map = key.read](const YamlNode& node, const ReadContext& context) {
    if (node.kind != YamlNode::Kind::kScalar) return read_map(node, context);
    TensorScalingConfig read;
    OperandScalingSection(read).Find("kind")->read(node, context);
    scaling = read;
  };
  return key;
}

const EnumNames<HadamardConfig::Signs> kSigns = {{"fixed", HadamardConfig::Signs::kFixed},
                                                 {"random", HadamardConfig::Signs::kRandom}};

// Those that backends have (backend/hadamard.h).
Key TransformSizeKey(HadamardConfig& hadamard) {
  static const std::array<int, 4> kSizes = {16, 32, 64, 128};
  Key key = MakeKey("size", "integer", "values of a transform, along what the product sums over");
  key.range = "16, 32, 64, 128";
  for (const int size : kSizes) key.schemas.push_back(IntegerSchema(FromTo(size, size)));
  key.read = [&hadamard](const YamlNode& node, const ReadContext& context) {
    long long size = 0;
    const bool read = ReadInteger(node, FromTo(1, kSizes.back()), size).empty();
    if (read && std::find(kSizes.begin(), kSizes.end(), size) != kSizes.end())
      hadamard.size = static_cast<int>(size);
    else
      context.problems.Add(node, context.path, Expected("16, 32, 64 or 128", node));
  };
  key.write = [&hadamard]() -> std::optional<YamlNode> {
    return Scalar(std::to_string(hadamard.size));
  };
  return key;
}

// A word, or the signs themselves.
Key SignsKey(HadamardConfig& hadamard) {
  using Signs = HadamardConfig::Signs;
  Key key =
      Choice("signs", hadamard.signs, kSigns,
             "fixed: those of Transformer Engine, repeated; random: drawn anew for every layer "
             "and pass; or a list of as many 1 and -1 as `size` says");
  const Key list = IntegerList("signs", hadamard.listed, FromTo(-1, 1), "");
  key.type = "word or list of integers";
  key.range += ", or a list of 1 and -1";
  key.schemas.insert(key.schemas.end(), list.schemas.begin(), list.schemas.end());
  key.read = [&hadamard, word = key.read, list = list.read](const YamlNode& node,
                                                            const ReadContext& context) {
    if (node.kind != YamlNode::Kind::kList) return word(node, context);
    list(node, context);
    hadamard.signs = Signs::kListed;
  };
  key.write = [&hadamard, word = key.write, list = list.write] {
    return hadamard.signs == Signs::kListed ? list() : word();
  };
  return key;
}

Section HadamardSection(HadamardConfig& hadamard) {
  Section section;
  section.path = "precision.operands.hadamard";
  section.keys = {
      OfItems(TextList("products", hadamard.products, {"forward", "dx", "dw"},
                       "whose operands are transformed"),
              1, std::numeric_limits<std::size_t>::max(),
              "expected at least one product; without `hadamard` none is transformed"),
      TransformSizeKey(hadamard),
      SignsKey(hadamard),
  };
  section.check = [&hadamard](const YamlNode& map, const ReadContext& context) {
    const std::string signs = Join(context.path, "signs");
    const std::vector<int>& listed = hadamard.listed;
    if (hadamard.signs != HadamardConfig::Signs::kListed ||
        !context.problems.Clean({signs, Join(context.path, "size")}))
      return;
    if (std::ssize(listed) == hadamard.size &&
        std::find(listed.begin(), listed.end(), 0) == listed.end())
      return;
    context.problems.Add(*map.Find("signs"), signs,
                         "expected a list of " + std::to_string(hadamard.size) +
                             " signs, each 1 or -1, as `size` says; got " +
                             std::to_string(listed.size()));
  };
  return section;
}

Section SparedOfOperands(SparedConfig& spared) {
  return SparedSection(spared, "precision.operands.spared");
}

// of_layers: of an entry of precision.layers.
Section OperandsSection(OperandsConfig& operands, bool of_layers) {
  const auto field = [&operands](Operand operand) -> Field& {
    return operands.by_operand[IndexOf(operand)];
  };
  const auto product = [&](const char* name, const std::array<const char*, 2>& names, Operand one,
                           Operand other, const char* meaning) {
    const char* const which = "this operand of the product";
    return GroupKey(name, {{names[0], &field(one), which}, {names[1], &field(other), which}},
                    meaning, "none, a format, or a map of both operands");
  };
  const auto within = [&](const char* name, AttentionTensor tensor, const char* meaning) {
    return Member{name, &operands.attention[static_cast<std::size_t>(tensor)], meaning};
  };
  // What `x`, `w` and `dy` say lives as long as the table, since the keys and the check share it.
  const auto x = std::make_shared<Field>(), w = std::make_shared<Field>(),
             dy = std::make_shared<Field>();
  using enum Operand;
  Section section;
  section.path = of_layers ? "precision.layers[].operands" : "precision.operands";
  section.keys = {
      GeneralKey("x", x, "the input, in forward and dw"),
      GeneralKey("w", w, "the weight, in forward and dx"),
      GeneralKey("dy", dy, "the gradient dy, in dx and dw"),
      product("forward", {"x", "w"}, kForwardX, kForwardW, "the product y = x w"),
      product("dx", {"dy", "w"}, kDxDy, kDxW, "the product dx = dy w"),
      product("dw", {"x", "dy"}, kDwX, kDwDy, "the product dw = x dy"),
      GroupKey("attention",
               {within("q", AttentionTensor::kQ, "queries, in s = q k^T and dk = ds^T q"),
                within("k", AttentionTensor::kK, "keys, in s and dq = ds k"),
                within("v", AttentionTensor::kV, "values, in y = p v and dp = dy v^T"),
                within("p", AttentionTensor::kP, "probabilities, in y and dv = p^T dy"),
                within("dy", AttentionTensor::kDy, "the gradient of y, in dv and dp"),
                within("ds", AttentionTensor::kDs, "gradients of scores, in dq and dk")},
               "what the six products of attention round once more",
               "none, a format, or a map of its operands"),
      ScalingKey(operands.tensor_scaling),
      OptionalMap("hadamard", operands.hadamard, HadamardSection,
                  "a transform of both operands of a product that spreads large values"),
  };
  if (!of_layers)
    section.keys.push_back(OptionalMap("spared", operands.spared, SparedOfOperands,
                                       "layers whose operands are taken as they are stored"));
  section.check = [field, x, w, dy](const YamlNode&, const ReadContext&) {
    // Runs after all keys were read, whatever their order in the file: a general key fills only
    // operands that no exact key has set.
    const auto fill = [&](const Field& general, Operand one, Operand other) {
      for (const Operand operand : {one, other})
        if (!field(operand)) field(operand) = general;
    };
    fill(*x, kForwardX, kDwX);
    fill(*w, kForwardW, kDxW);
    fill(*dy, kDxDy, kDwDy);
  };
  return section;
}

Key OperandsKeyOf(OperandsConfig& operands, bool of_layers) {
  Section (*const section_of)(OperandsConfig&) =
      of_layers ? +[](OperandsConfig& of) { return OperandsSection(of, true); }
                : +[](OperandsConfig& of) { return OperandsSection(of, false); };
  Key key = MakeKey("operands", "word or map",
                    "what the products of convolutions and linear layers round once more");
  key.range = "none, a format, or the keys of `precision.operands`";
  key.default_text = "as stored";
  key.section = ExampleSection<OperandsConfig>(section_of);
  key.schemas = FormatSchemas();
  key.schemas.push_back(MapSchema([inner = key.section] { return inner; }));
  key.read = [&operands, section_of](const YamlNode& node, const ReadContext& context) {
    if (node.kind == YamlNode::Kind::kMap && !IsFormatMap(node))
      return ReadSection(node, section_of(operands), context);
    OperandConfig all;
    const std::size_t problems = context.problems.count();
    ReadFormat(node, context, Follows::kNever, all);
    // A format for all operands also sets those that stay `none`, so a recipe does not change them.
    // Neither this nor a recipe reaches attention, which has a key of its own.
    if (context.problems.count() == problems) operands.by_operand.fill(all);
  };
  key.write = [&operands, section_of]() -> std::optional<YamlNode> {
    if (!operands.given()) return std::nullopt;
    // The table binds to fields that are not const; writing changes none of them.
    OperandsConfig copy = operands;
    return WriteSection(section_of(copy));
  };
  return key.WrittenIf([&operands] { return operands.given(); });
}

}  // namespace

Section SparedSection(SparedConfig& spared, const char* path) {
  Section section;
  section.path = path;
  section.keys = {
      Integer("first", spared.first, FromTo(0, 1'000'000), "layers with weights at the start"),
      Integer("last", spared.last, FromTo(0, 1'000'000), "layers with weights at the end"),
  };
  return section;
}

bool OperandsConfig::given() const {
  const auto given = [](const Field& field) { return field.has_value(); };
  return tensor_scaling || hadamard || spared ||
         std::any_of(by_operand.begin(), by_operand.end(), given) ||
         std::any_of(attention.begin(), attention.end(), given);
}

Key OperandsKey(OperandsConfig& operands) { return OperandsKeyOf(operands, false); }
Key LayerOperandsKey(OperandsConfig& operands) { return OperandsKeyOf(operands, true); }

}  // namespace ada::config
