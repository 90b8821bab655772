// data.label_values: what the values of label images mean.
// Data sets of segmentation code classes as values or as colors of their label images. The map is
// from such a value to the name of a class, which several values may share.
#include <algorithm>
#include <charconv>
#include <optional>

#include "config/sections/sections.h"
#include "io/text.h"

namespace ada::config {
namespace {

constexpr char kExpectedValue[] =
    "a value from 0 to 255, or a color as \"#ff8000\" or \"255 128 0\"";
constexpr std::uint32_t kLargestByte = 255;

// A value of a gray or palette PNG, or a color as 0xRRGGBB.
struct LabelValue {
  std::uint32_t value = 0;
  bool is_color = false;
};

// Numbers between blanks or commas; nothing where `text` holds anything else.
std::optional<std::vector<std::uint32_t>> BytesIn(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  std::vector<std::uint32_t> numbers;
  const char *at = text.data(), *end = at + text.size();
  while (true) {
    while (at != end && *at == ' ') ++at;
    if (at == end) return numbers;
    std::uint32_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number > kLargestByte) return std::nullopt;
    numbers.push_back(number);
    at = next;
  }
}

// One number is a value, three are a color, and '#' with six hexadecimal digits is one, too.
std::optional<LabelValue> LabelValueOf(const std::string& text) {
  constexpr std::size_t kHexDigits = 6;
  if (text.starts_with('#')) {
    LabelValue color{0, true};
    const char* const end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data() + 1, end, color.value, 16);
    const bool whole = error == std::errc() && next == end && text.size() == 1 + kHexDigits;
    return whole ? std::optional(color) : std::nullopt;
  }
  const auto bytes = BytesIn(text);
  // 010 is 8 to some readers of YAML and 10 to others.
  const bool octal = text.size() > 1 && text.front() == '0';
  if (bytes && bytes->size() == 1 && !octal) return LabelValue{bytes->front(), false};
  if (bytes && bytes->size() == 3)
    return LabelValue{(*bytes)[0] << 16 | (*bytes)[1] << 8 | (*bytes)[2], true};
  return std::nullopt;
}

// What is wrong with one more entry; "": nothing, and it is added.
// Keys of the map are read as text, so 0 and "0" are one value; a value that stands twice is
// refused.
std::string AddEntry(const Entry& entry, const std::string& name, data::LabelValues* values) {
  const std::optional<LabelValue> value = LabelValueOf(entry.key.text);
  if (!value) return Expected(kExpectedValue, entry.key);
  // A label image has one kind of pixels, so one map cannot mix them.
  if (values->any() && values->by_color != value->is_color)
    return "values and colors together; expected one kind";
  const auto same = [&](const auto& other) { return other.first == value->value; };
  if (std::any_of(values->classes.begin(), values->classes.end(), same))
    return data::ValueText(value->value, value->is_color) + " is there twice";
  values->by_color = value->is_color;
  values->classes.emplace_back(value->value, name);
  return "";
}

void ReadLabelValues(const YamlNode& node, const ReadContext& context, DataConfig* data) {
  if (node.kind != YamlNode::Kind::kMap || node.entries.empty())
    return context.problems.Add(node, context.path,
                                Expected("a map, {0: background, 255: lesion}", node));
  for (const Entry& entry : node.entries) {
    std::string name;
    const std::string refusal = ReadText(entry.value, name);
    if (!refusal.empty()) {
      context.problems.Add(entry.value, context.path, refusal);
      continue;
    }
    const std::string problem = AddEntry(entry, name, &data->label_values);
    if (!problem.empty()) context.problems.Add(entry.key, context.path, problem);
  }
}

}  // namespace

void CheckLabelValues(const DataConfig& data, const YamlNode& map, const ReadContext& context) {
  const YamlNode* values = map.Find("label_values");
  if (values == nullptr || data.class_names.empty()) return;
  if (Contains(data.class_names, data::kIgnoredName))
    context.problems.Add(*map.Find("class_names"), Join(context.path, "class_names"),
                         "'" + std::string(data::kIgnoredName) +
                             "' is what label_values calls pixels that are passed over; give the "
                             "class another name");
  for (const Entry& entry : values->entries) {
    const std::string& name = entry.value.text;
    if (name == data::kIgnoredName || Contains(data.class_names, name)) continue;
    const std::string nearest = NearestName(name, data.class_names);
    context.problems.Add(entry.value, Join(context.path, "label_values"),
                         "'" + name + "' is none of data.class_names" +
                             (nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
  }
}

Key LabelValuesKey(DataConfig& data) {
  Key key = MakeKey("label_values", "map",
                    "the class of each value of label images, or of each color; the word `ignored` "
                    "for pixels that are passed over");
  key.range = "{0: background, 255: lesion} or {\"#ff0000\": lesion, ...}";
  key.default_text = "a value is the number of its class";
  key.schemas = {TextMapSchema()};
  key.read = [&data](const YamlNode& node, const ReadContext& context) {
    ReadLabelValues(node, context, &data);
  };
  key.write = [&data]() -> std::optional<YamlNode> {
    if (!data.label_values.any()) return std::nullopt;
    YamlNode map;
    map.kind = YamlNode::Kind::kMap;
    for (const auto& [value, name] : data.label_values.classes) {
      Entry entry;
      entry.key = TextNode(data::ValueText(value, data.label_values.by_color));
      // A '#' without quotes would start a comment.
      entry.key.quoted = data.label_values.by_color;
      entry.value = TextNode(name);
      map.entries.push_back(std::move(entry));
    }
    return map;
  };
  return key;
}

}  // namespace ada::config
