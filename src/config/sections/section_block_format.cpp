// Block-scaled formats as maps of element, block, scale and rule, and their names.
// FormatSection (section_precision.cpp) is the same for plain formats. What fits together of
// element, scale and rule says number/blocks/block_format.h (RefuseBlockFormat).
#include <algorithm>

#include "config/sections/sections.h"
#include "io/text.h"

namespace ada::config {
namespace {

// The kinds of a block's scale: a power of two of eight bits (OCP Microscaling Formats), FP8 as in
// NVFP4, fp32 as in DeepSeek-V3, or HiFloat4's.
const EnumNames<BlockScale> kBlockScales = {{"e8m0", BlockScale::kE8M0},
                                            {"fp8_e4m3", BlockScale::kFp8E4M3},
                                            {"fp32", BlockScale::kFp32},
                                            {"ue5m3", BlockScale::kUE5M3},
                                            {"e6m2", BlockScale::kE6M2}};
const EnumNames<BlockRule> kBlockRules = {{"floor", BlockRule::kFloor},
                                          {"ceil", BlockRule::kCeil},
                                          {"even", BlockRule::kEven},
                                          {"rceil", BlockRule::kRceil},
                                          {"te", BlockRule::kTe},
                                          {"four_over_six", BlockRule::kFourOverSix},
                                          {"torchao", BlockRule::kTorchao},
                                          {"modelopt", BlockRule::kModelopt},
                                          {"hifloat4", BlockRule::kHiFloat4}};
const EnumNames<BlockError> kBlockErrors = {{"mae", BlockError::kMae}, {"mse", BlockError::kMse}};

Key ElementKey(NumberFormat& element) {
  Names names;
  for (const NamedFormat& known : BlockElements()) names.emplace_back(known.name);
  return WordKey(
      "element", names,
      [&element](std::size_t index) { element = BlockElements().at(index).format; },
      [&element]() -> std::optional<std::size_t> {
        for (std::size_t i = 0; i < BlockElements().size(); ++i) {
          if (BlockElements()[i].format == element) return i;
        }
        return std::nullopt;
      },
      "format of the values beside the scale");
}

// [n, n] or [1, n]; nothing where `node` is none of these, or a number of it is no size.
std::optional<std::pair<long long, long long>> SidesOf(const YamlNode& node, const Range& sizes) {
  const bool list = node.kind == YamlNode::Kind::kList;
  if (list && node.items.size() != 2) return std::nullopt;
  long long rows = 1, columns = 0;
  if (!ReadInteger(list ? node.items[1] : node, sizes, columns).empty()) return std::nullopt;
  if (list && !ReadInteger(node.items[0], sizes, rows).empty()) return std::nullopt;
  // Tiles are rows of n values or squares; [1, n] is another way to write n.
  if (rows != 1 && rows != columns) return std::nullopt;
  return std::pair(rows, columns);
}

Key BlockKey(BlockFormat& format) {
  const Range sizes = FromTo(1, kMostBlock);
  Key key = MakeKey("block", "integer or list",
                    "values along the axis that share a scale; [n, n]: square tiles");
  key.range = "1 to " + std::to_string(kMostBlock) + ", [1, n] or [n, n]";
  key.schemas = {IntegerSchema(sizes), ListSchema({IntegerSchema(sizes)}, 2)};
  key.schemas.back().most = 2;
  key.default_text = "32; scale fp8_e4m3: 16; scale fp32: 128";
  key.read = [&format, sizes](const YamlNode& node, const ReadContext& context) {
    const auto sides = SidesOf(node, sizes);
    if (!sides) {
      context.problems.Add(node, context.path,
                           Expected("a number of values, 1 to " + std::to_string(kMostBlock) +
                                        ", or [n, n] for square tiles",
                                    node));
      return;
    }
    format.block = static_cast<int>(sides->second);
    format.square = sides->first > 1;
  };
  key.write = [&format]() -> std::optional<YamlNode> {
    const YamlNode size = Scalar(std::to_string(format.block));
    return format.square ? List({size, size}) : size;
  };
  return key;
}

constexpr char kRow[] = "row";

// true or false, or `row`.
Key TensorScaleKey(BlockFormat& format) {
  Key key = MakeKey("tensor_scale", "boolean or word",
                    "the tensor has an fp32 scale as well; row: each of its rows has one, all "
                    "values along the axis of the blocks");
  key.range = "true, false, row";
  key.schemas = {SwitchSchema(), WordSchema({kRow})};
  key.default_text = "true";
  key.read = [&format](const YamlNode& node, const ReadContext& context) {
    format.row_scaled = IsWord(node, kRow);
    if (format.row_scaled) {
      format.tensor_scale = true;
      return;
    }
    if (!ReadSwitch(node, format.tensor_scale).empty())
      context.problems.Add(node, context.path,
                           Expected("true, false or row", node) + QuotedHint(node));
  };
  key.write = [&format]() -> std::optional<YamlNode> {
    if (format.row_scaled) return Scalar(kRow);
    return Scalar(format.tensor_scale ? "true" : "false");
  };
  return key;
}

Key TopKey(BlockFormat& format) {
  Key key = MakeKey("top", "integer", "what the largest scale of a block is brought to");
  key.range = "448, 256";
  key.schemas = {IntegerSchema(FromTo(256, 256)), IntegerSchema(FromTo(448, 448))};
  key.default_text = "448";
  key.read = [&format](const YamlNode& node, const ReadContext& context) {
    long long top = 0;
    if (ReadInteger(node, FromTo(256, 448), top).empty() && (top == 256 || top == 448))
      format.top = static_cast<int>(top);
    else
      context.problems.Add(node, context.path, Expected("448 or 256", node));
  };
  key.write = [&format]() -> std::optional<YamlNode> { return Scalar(std::to_string(format.top)); };
  return key;
}

}  // namespace

Names BlockFormatNames() {
  Names names;
  for (const NamedBlockFormat& known : NamedBlockFormats()) names.emplace_back(known.name);
  return names;
}

// One such key is enough: others may be missing or misspelled, which is then reported as a problem
// of a block-scaled format.
bool IsBlockMap(const YamlNode& node) {
  const auto section = ExampleSection<BlockFormat>(BlockFormatSection);
  return node.kind == YamlNode::Kind::kMap &&
         std::any_of(node.entries.begin(), node.entries.end(),
                     [&](const Entry& entry) { return section->Find(entry.key.text) != nullptr; });
}

// The scale is the first choice and the rule the second: some keys exist for rule four_over_six
// only.
Section BlockFormatSection(BlockFormat& format) {
  Section section;
  section.path = "block_format";
  section.is_value = true;
  section.discriminator = "scale";
  for (const auto& [word, scale] : kBlockScales) section.choices.push_back(word);
  section.default_choice = "e8m0";
  section.second_discriminator = "rule";
  for (const auto& [word, rule] : kBlockRules) section.second_choices.push_back(word);
  section.default_second_choice = "te";
  // The size of a block and the rule start as the kind of scale has them. The element is not known
  // yet when this is called; ElementKey sets it afterwards.
  section.set_defaults = [&format](const std::string& choice) {
    for (const auto& [word, scale] : kBlockScales) {
      if (word == choice) format = DefaultBlockFormat(format.element, scale);
    }
  };
  section.keys = {
      ElementKey(format.element).Required(),
      BlockKey(format),
      Choice("scale", format.scale, kBlockScales, "how the scale of a block is kept"),
      Choice("rule", format.rule, kBlockRules,
             "how the scale follows from the block's largest magnitude; e8m0: floor, ceil, even or "
             "rceil; fp8_e4m3: te, four_over_six, torchao or modelopt; fp32: te")
          .Default("floor; scale fp8_e4m3, fp32: te"),
      TensorScaleKey(format).For({"fp8_e4m3"}),
      Switch("power_of_two", format.power_of_two, "scales are rounded to powers of two")
          .For({"fp32"}),
      Choice("error", format.error, kBlockErrors,
             "by which error one of the two scales of a block is chosen")
          .For({"fp8_e4m3"})
          .ForSecond({"four_over_six"}),
      TopKey(format).For({"fp8_e4m3"}).ForSecond({"four_over_six"}),
  };
  section.check = [&format](const YamlNode& map, const ReadContext& context) {
    if (!context.problems.Clean({Join(context.path, "element"), Join(context.path, "block"),
                                 Join(context.path, "scale"), Join(context.path, "rule"),
                                 Join(context.path, "top"), Join(context.path, "tensor_scale")})) {
      return;
    }
    const std::string refusal = RefuseBlockFormat(format);
    if (!refusal.empty()) context.problems.Add(map, context.path, refusal);
  };
  return section;
}

std::optional<BlockFormat> ReadBlockFormatNode(const YamlNode& node, const ReadContext& context) {
  if (IsBlockMap(node)) {
    BlockFormat format;
    const std::size_t problems = context.problems.count();
    ReadSection(node, BlockFormatSection(format), context);
    return context.problems.count() > problems ? std::nullopt : std::optional(format);
  }
  for (const NamedBlockFormat& known : NamedBlockFormats()) {
    if (node.kind == YamlNode::Kind::kScalar && known.name == node.text) return known.format;
  }
  return std::nullopt;
}

}  // namespace ada::config
