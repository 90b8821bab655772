// Formats as values of keys: a name (number/number_format.cpp) or a map of its bits.
// ReadFormatNode is the one reader of both, for keys as well as for options of the command line.
#include "config/keys/keys.h"
#include "config/sections/sections.h"
#include "number/tables/table_format.h"

namespace ada::config {
namespace {

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

Names TensorFormatNames() { return FormatNames(true); }
std::string TensorFormatWords() {
  return FormatWords(FormatNames(true), "{exponent: E, mantissa: M, ...}");
}
ValueSchema P3109Schema() { return TextSchema(kP3109Pattern); }

// A format that has a name is written by it, however it was given.
YamlNode FormatNode(NumberFormat format) {
  if (format.table != 0) return Scalar(FormatName(format));
  for (const NamedFormat& known : NamedFormats()) {
    if (known.format == format) return Scalar(std::string(known.name));
  }
  return WriteSection(FormatSection(format));
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

}  // namespace ada::config
