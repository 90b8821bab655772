// Formats as values of keys that accept plain and block-scaled ones, and the message for a
// block-scaled one where a plain one is needed.
#include "config/sections/sections.h"
#include "io/text.h"

namespace ada::config {

namespace {

// The recipe that rounds operands to such a format, by the format's family.
std::string RecipeOf(const std::string& format) {
  if (format.starts_with("nvfp4")) return "te_nvfp4";
  if (format.starts_with("mxfp4")) return "mxfp4_hadamard";
  return format.starts_with("fp8_block") ? "deepseek_v3" : "te_mxfp8";
}

}  // namespace

std::string BlockFormatPlaces(const std::string& format) {
  return "block-scaled formats go to precision.operands (--set precision.operands=" + format +
         "), for what products multiply, or come with precision.recipe (--set precision.recipe=" +
         RecipeOf(format) + "); also to log.what_if, and to convert, inspect and what-if";
}

std::string BlockFormatMeant(const std::string& word, const std::string& hint) {
  for (const auto& [recipe, value] : RecipeNames())
    if (recipe == word && value != PrecisionRecipe::kNone)
      return "that is a recipe: --set precision.recipe=" + word;
  for (const std::string& format : BlockFormatNames())
    if (hint.find("'" + format + "'") != std::string::npos || NearestName(word, {format}) == format)
      return "'" + format + "' is meant? " + BlockFormatPlaces(format);
  return "";
}

std::string BlockFormatMisplaced(const YamlNode& node) {
  const bool named =
      node.kind == YamlNode::Kind::kScalar && Contains(BlockFormatNames(), node.text);
  if (!named && !IsBlockMap(node)) return "";
  return (named ? "'" + node.text + "': " : std::string()) +
         "a block-scaled format cannot stand here; " +
         BlockFormatPlaces(named ? node.text : "mxfp8_e4m3");
}

std::optional<AnyFormat> ReadAnyFormatNode(const YamlNode& node, bool tensors_only,
                                           const ReadContext& context) {
  const std::size_t problems = context.problems.count();
  const std::optional<BlockFormat> blocks = ReadBlockFormatNode(node, context);
  if (blocks) return *blocks;
  // A map of blocks with a mistake has its problem already; read as a plain format it would get a
  // second one that misleads.
  if (context.problems.count() > problems) return std::nullopt;
  const auto read = ReadFormatNode(node, tensors_only, BlockFormatNames(), context);
  return read ? std::optional<AnyFormat>(*read) : std::nullopt;
}

YamlNode AnyFormatNode(const AnyFormat& format) {
  if (const auto* plain = std::get_if<NumberFormat>(&format)) return FormatNode(*plain);
  BlockFormat block = std::get<BlockFormat>(format);
  for (const NamedBlockFormat& known : NamedBlockFormats()) {
    if (known.format == block) return Scalar(std::string(known.name));
  }
  return WriteSection(BlockFormatSection(block));
}

Names AnyFormatNames() {
  Names names = TensorFormatNames();
  for (std::string& block : BlockFormatNames()) names.push_back(std::move(block));
  return names;
}

// The markers are the keys that each of the maps requires.
std::vector<ValueSchema> AnyFormatMaps() {
  return {MapSchema([] { return ExampleSection<NumberFormat>(FormatSection); }, "exponent"),
          MapSchema([] { return ExampleSection<BlockFormat>(BlockFormatSection); }, "element")};
}

Key AnyFormatKey(std::string name, std::optional<AnyFormat>& field, std::string meaning) {
  Key key = MakeKey(std::move(name), "word or map", std::move(meaning));
  key.range = "a format, of blocks too";
  key.schemas = AnyFormatMaps();
  key.schemas.insert(key.schemas.begin(), {WordSchema(AnyFormatNames()), P3109Schema()});
  key.read = [&field](const YamlNode& node, const ReadContext& context) {
    const auto read = ReadAnyFormatNode(node, true, context);
    if (read) field = read;
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    return field ? std::optional(AnyFormatNode(*field)) : std::nullopt;
  };
  return key;
}

}  // namespace ada::config
