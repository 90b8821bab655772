// The keys of labels that are more than a class. data.label_values maps the values or colors of
// label images to names of classes, which several values may share. Keys of `data.augment` change
// images together with their label images or boxes: a change that moves pixels must move both
// alike. CheckAugmentWithLabels refuses those that cannot do so.
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

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

// A map, or true for what it is by itself, or false for nothing.
// `true` is a struct of defaults, so a change can be switched on without naming its numbers.
template <class T>
Key SwitchOrMap(std::string name, std::optional<T>& field, Section (*make)(T&),
                std::string meaning) {
  Key key = MakeKey(std::move(name), "boolean or map", std::move(meaning));
  key.section = ExampleSection<T>(make);
  key.schemas = {SwitchSchema(), MapSchema([section = key.section] { return section; })};
  key.range = "true, false, map";
  key.default_text = "true";
  key.read = [&field, make](const YamlNode& node, const ReadContext& context) {
    T read;
    if (node.kind == YamlNode::Kind::kMap) {
      ReadSection(node, make(read), context);
      field = read;
      return;
    }
    bool on = false;
    const std::string refusal = ReadSwitch(node, on);
    if (!refusal.empty())
      return context.problems.Add(node, context.path,
                                  Expected("true, false or a map", node) + QuotedHint(node));
    field = on ? std::optional<T>(read) : std::nullopt;
  };
  key.write = [&field, make]() -> std::optional<YamlNode> {
    if (!field) return Scalar("false");
    return WriteSection(make(*field));
  };
  return key;
}

// Three numbers, one a channel.
Key ColorKey(std::string name, std::array<double, 3>& field, std::string meaning) {
  const Range range = FromTo(0, 255);
  Key key = MakeKey(std::move(name), "list of numbers", std::move(meaning));
  key.range = range.Text();
  ValueSchema schema = ListSchema({NumberSchema(range)}, 3);
  schema.most = 3;
  key.schemas = {schema};
  key.read = [&field, range](const YamlNode& node, const ReadContext& context) {
    if (node.kind != YamlNode::Kind::kList || node.items.size() != 3)
      return context.problems.Add(node, context.path, Expected("[red, green, blue]", node));
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string refusal = ReadNumber(node.items[i], range, field[i]);
      if (!refusal.empty()) context.problems.Add(node.items[i], context.path, refusal);
    }
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    std::vector<YamlNode> items;
    for (const double value : field) items.push_back(Scalar(NumberText(value)));
    return List(std::move(items));
  };
  return key;
}

// The smaller number of a range comes first.
void CheckAscending(const char* name, const data::Range& range, const YamlNode& map,
                    const ReadContext& context) {
  const YamlNode* value = map.Find(name);
  if (value && range.low > range.high)
    context.problems.Add(*value, Join(context.path, name), "the first number is above the second");
}

// Changes of colors as ChainerCV makes them with OpenCV (data/images/random_changes.h): brightness
// is in bytes, and a turn of the hue is 180.
Section DistortSection(data::DistortSpec& distort) {
  Section section;
  section.path = "data.augment.ssd.distort";
  const Range factor = FromTo(0, 100);
  section.keys = {
      Number("brightness", distort.brightness, FromTo(0, 255), "v: what is added, from -v to v"),
      RangeKey("contrast", distort.contrast, factor, "a factor"),
      RangeKey("saturation", distort.saturation, factor, "a factor, of HSV's saturation"),
      Integer("hue", distort.hue, FromTo(0, 90), "v: what is added, from -v to v; 180 is a turn"),
  };
  section.check = [&distort](const YamlNode& map, const ReadContext& context) {
    CheckAscending("contrast", distort.contrast, map, context);
    CheckAscending("saturation", distort.saturation, map, context);
  };
  return section;
}

Section ExpandSection(data::ExpandSpec& expand) {
  Section section;
  section.path = "data.augment.ssd.expand";
  section.keys = {
      Number("p", expand.p, FromTo(0, 1), "the share of images that are expanded"),
      Number("most_ratio", expand.most_ratio, FromTo(1, 16),
             "the canvas's sides are up to so many times the image's"),
      ColorKey("fill", expand.fill, "the canvas's colour, in bytes"),
  };
  return section;
}

// The crop of SSD's augmentation (data/box_changes.h).
Section BoxCropSection(data::BoxCropSpec& crop) {
  Section section;
  section.path = "data.augment.ssd.crop";
  section.keys = {
      RangeKey("scale", crop.scale, FromTo(0.01, 1), "the crop's sides through the image's"),
      Number("most_aspect", crop.most_aspect, FromTo(1, 100),
             "the crop's width through its height (against the image's) is at most so much, and at "
             "least 1 through it"),
      NumberList("least_overlaps", crop.least_overlaps, FromTo(0, 1),
                 "a candidate is drawn for each of these: every box has at least this IoU with it; "
                 "one of the candidates, or the whole image, is taken"),
      Integer("trials", crop.trials, FromTo(1, 1000), "draws for a candidate"),
  };
  section.check = [&crop](const YamlNode& map, const ReadContext& context) {
    CheckAscending("scale", crop.scale, map, context);
  };
  return section;
}

// The order of the keys is that in which the changes are made, the flip last.
Section SsdSection(data::SsdChangesSpec& ssd) {
  Section section;
  section.path = "data.augment.ssd";
  section.keys = {
      SwitchOrMap("distort", ssd.distort, DistortSection,
                  "brightness, contrast, saturation and hue, each in half of the images"),
      SwitchOrMap("expand", ssd.expand, ExpandSection, "put on a larger canvas"),
      SwitchOrMap("crop", ssd.crop, BoxCropSection, "a crop that keeps an overlap with the boxes"),
      Switch("random_interpolation", ssd.random_interpolation,
             "one of OpenCV's linear, area, nearest, cubic and Lanczos; false: linear"),
      Number("flip_p", ssd.flip_p, FromTo(0, 1), "the share of images that are mirrored"),
  };
  return section;
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

Key RandomScaleKey(std::optional<data::Range>& range) {
  // RangeKey binds to a plain range and the field is optional; the closures copy between them.
  const auto drawn = std::make_shared<data::Range>();
  Key key =
      RangeKey("random_scale", *drawn, FromTo(0.01, 16),
               "both sides times a random factor, after data.resize; then the network's size "
               "is cut from a random place, or the smaller image lies somewhere in it and the "
               "rest is black, without labels; no image grows beyond 178956970 pixels")
          .Default("none");
  key.read = [&range, drawn, read = std::move(key.read)](const YamlNode& node,
                                                         const ReadContext& context) {
    *drawn = {};
    read(node, context);
    if (drawn->high == 0) return;  // refused
    if (drawn->low > drawn->high)
      return context.problems.Add(node, context.path, "the first number is above the second");
    range = *drawn;
  };
  key.write = [&range, drawn, write = std::move(key.write)]() -> std::optional<YamlNode> {
    if (!range) return std::nullopt;
    *drawn = *range;
    return write();
  };
  return key;
}

Key SsdKey(std::optional<data::SsdChangesSpec>& ssd) {
  Key key = SwitchOrMap("ssd", ssd, SsdSection,
                        "dataset voc: the random changes of SSD (Liu et al. 2016), on images and "
                        "boxes; replaces all others");
  key.default_text = "false";
  return key.WrittenIf([&ssd] { return ssd.has_value(); });
}

void CheckAugmentWithLabels(const DataConfig& data, const YamlNode& map,
                            const ReadContext& context) {
  const YamlNode* augment = map.Find("augment");
  const std::string path = Join(context.path, "augment");
  // Reported only if the key was written and has an effect.
  const auto refuse = [&](bool used, const char* key, const std::string& why) {
    const Entry* entry = used && augment ? augment->FindEntry(key) : nullptr;
    if (entry) context.problems.Add(entry->key, Join(path, key), why);
  };
  const data::ImageChanges& changes = data.changes;
  const bool boxes = data.dataset == "voc", labels = data.dataset == "camvid";
  refuse(!boxes && changes.ssd, "ssd",
         "moves boxes with their images: it is for data.dataset: voc");
  if (!boxes && !labels) return;
  const std::string got = " (data.dataset: " + data.dataset + ")";
  refuse(data.augment.mixup.alpha > 0, "mixup", "mixes images with one label each" + got);
  refuse(data.augment.cutmix.alpha > 0, "cutmix", "mixes images with one label each" + got);
  const Entry* crop = changes.crops() ? map.FindEntry("center_crop") : nullptr;
  if (crop)
    context.problems.Add(crop->key, Join(context.path, "center_crop"),
                         "whole images are evaluated; use data.resize" + got);
  if (!boxes) return;
  const std::string behind = "would leave boxes behind; use augment.ssd" + got;
  refuse(data.augment.pad > 0, "pad", behind);
  refuse(data.augment.random_crop, "random_crop", behind);
  refuse(changes.random_resized_crop.has_value(), "random_resized_crop", behind);
  refuse(changes.random_scale.has_value(), "random_scale", behind);
  refuse(changes.random_erasing.has_value(), "random_erasing", behind);
  const std::string part = "augment.ssd mirrors and distorts by itself; give one of them";
  refuse(changes.ssd && data.augment.horizontal_flip, "horizontal_flip", part);
  refuse(changes.ssd && changes.color_jitter, "color_jitter", part);
}

}  // namespace ada::config
