// Keys of `data` that say how an image is changed on its way into the network. Most of them are
// fields of DataConfig::changes; padding, crops and mirroring are in AugmentConfig. data/settings.h
// says which change follows which.
//
// data.augment.mixup is of Zhang et al., ICLR 2018, data.augment.cutmix of Yun et al., ICCV 2019. A
// batch is mixed in one of the two ways or not at all, so the shares of batches add up to at most
// 1.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "config/sections/sections.h"

namespace ada::config {
namespace {

Section MixSection(const char* path, MixConfig& mix) {
  Section section;
  section.path = path;
  section.keys = {
      Number("alpha", mix.alpha, AtLeast(0),
             "the first image's share is drawn from Beta(alpha, alpha); 0: never"),
      Number("p", mix.p, FromTo(0, 1), "share of the batches")
          .Default("1; 0.5 where mixup and cutmix are both on"),
  };
  return section;
}

constexpr double kMostPixels = 16'384;  // on a side

// Two numbers.
// False and a problem where it is no list of two numbers within the range; their order is checked
// by CheckOrder, which can name the key.
bool ReadRange(const YamlNode& node, const Range& within, data::Range& range,
               const ReadContext& context) {
  std::array<double, 2> ends{};
  if (node.kind != YamlNode::Kind::kList || node.items.size() != 2) {
    context.problems.Add(node, context.path, Expected("[smallest, largest]", node));
    return false;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string refusal = ReadNumber(node.items[i], within, ends[i]);
    if (!refusal.empty()) context.problems.Add(node.items[i], context.path, refusal);
    if (!refusal.empty()) return false;
  }
  range = {ends[0], ends[1]};
  return true;
}

// The smaller number comes first.
// A section calls it in its check, with all of its ranges.
using NamedRange = std::pair<const char*, const data::Range*>;
void CheckOrder(const std::vector<NamedRange>& ranges, const YamlNode& map,
                const ReadContext& context) {
  for (const auto& [name, range] : ranges) {
    const YamlNode* value = map.Find(name);
    if (!value || range->low <= range->high) continue;
    context.problems.Add(*value, Join(context.path, name), "the first number is above the second");
  }
}

YamlNode RangeNode(const data::Range& range) {
  return List({Scalar(NumberText(range.low)), Scalar(NumberText(range.high))});
}

ValueSchema RangeSchema(const Range& within) {
  ValueSchema schema = ListSchema({NumberSchema(within)}, 2);
  schema.most = 2;
  return schema;
}

// A height and a width of a picture; 0x0: unset.
// Pair binds to two ints in an array and the field is a PictureSize: the closures copy between
// them, and share the array because a key may be copied.
Key SizeKey(std::string name, data::PictureSize& field, std::string meaning) {
  struct Sides {
    std::array<int, 2> both{};
  };
  const auto sides = std::make_shared<Sides>();
  Key key = Pair(std::move(name), sides->both, FromTo(1, kMostPixels), std::move(meaning));
  key.read = [sides, &field, read = std::move(key.read)](const YamlNode& node,
                                                         const ReadContext& context) {
    read(node, context);
    field = {sides->both[0], sides->both[1]};
  };
  key.write = [sides, &field, write = std::move(key.write)]() -> std::optional<YamlNode> {
    if (field.height == 0) return std::nullopt;
    sides->both = {field.height, field.width};
    return write();
  };
  return key;
}

// A factor v means 1 - v to 1 + v (of the hue -v to v); or both ends.
Key JitterKey(std::string name, data::Range& field, double neutral, const Range& factor,
              const Range& ends, std::string meaning) {
  Key key = MakeKey(std::move(name), "number or [smallest, largest]", std::move(meaning));
  key.range = factor.Text() + ", or both ends " + ends.Text();
  key.default_text = "0";
  key.schemas = {NumberSchema(factor), RangeSchema(ends)};
  key.read = [&field, neutral, factor, ends](const YamlNode& node, const ReadContext& context) {
    if (node.kind == YamlNode::Kind::kList) {
      ReadRange(node, ends, field, context);
      return;
    }
    double value = 0;
    const std::string refusal = ReadNumber(node, factor, value);
    if (!refusal.empty()) return context.problems.Add(node, context.path, refusal);
    // A strength above 1 would give negative factors; the lower end stops at the smallest allowed.
    field = {std::max(neutral - value, ends.low), neutral + value};
  };
  key.write = [&field, neutral]() -> std::optional<YamlNode> {
    if (field == data::Range{neutral, neutral}) return std::nullopt;
    return RangeNode(field);
  };
  return key;
}

// A number, one a channel, or `random`.
// A single number is kept as a list of one, which stands for all channels.
Key ErasingValueKey(data::RandomErasingSpec& erasing) {
  Key key = MakeKey("value", "number, list of numbers or word",
                    "what is put there, after normalising (0: the mean colour); one a channel; "
                    "random: standard normal");
  key.range = "any, random";
  key.schemas = {NumberSchema(AnyNumber()), ListSchema({NumberSchema(AnyNumber())}, 1),
                 WordSchema({"random"})};
  key.read = [&erasing](const YamlNode& node, const ReadContext& context) {
    erasing.random_values = IsWord(node, "random");
    if (erasing.random_values) return;
    const bool list = node.kind == YamlNode::Kind::kList;
    std::vector<double> values;
    if (list && node.items.empty())
      context.problems.Add(node, context.path, "expected a value for each channel; got none");
    for (std::size_t i = 0; i < (list ? node.items.size() : 1); ++i) {
      const YamlNode& item = list ? node.items[i] : node;
      double value = 0;
      const std::string refusal = ReadNumber(item, AnyNumber(), value);
      if (!refusal.empty()) return context.problems.Add(item, context.path, refusal);
      values.push_back(value);
    }
    if (!values.empty()) erasing.value = values;
  };
  key.write = [&erasing]() -> std::optional<YamlNode> {
    if (erasing.random_values) return Scalar("random");
    if (erasing.value.size() == 1) return Scalar(NumberText(erasing.value[0]));
    std::vector<YamlNode> items;
    for (const double value : erasing.value) items.push_back(Scalar(NumberText(value)));
    return List(std::move(items));
  };
  return key;
}

// The sections of color_jitter, random_erasing and random_resized_crop have the defaults of
// torchvision's transforms of these names, in the structs of data/images/random_changes.h.
Section RandomResizedCropSection(data::RandomResizedCrop& crop) {
  Section section;
  section.path = "data.augment.random_resized_crop";
  section.keys = {
      SizeKey("size", crop.size, "what the crop is resized to").Required(),
      RangeKey("scale", crop.box.scale, FromTo(1e-6, 1), "the crop's share of the image's area"),
      RangeKey("ratio", crop.box.ratio, FromTo(1e-3, 1e3), "its width through its height"),
  };
  section.check = [&crop](const YamlNode& map, const ReadContext& context) {
    CheckOrder({{"scale", &crop.box.scale}, {"ratio", &crop.box.ratio}}, map, context);
  };
  return section;
}

// Strengths follow torchvision: one number is symmetric about "no change", two are the ends.
Section ColorJitterSection(data::ColorJitterSpec& jitter) {
  Section section;
  section.path = "data.augment.color_jitter";
  const Range strength = FromTo(0, 100), ends = FromTo(0, 101);
  section.keys = {
      JitterKey("brightness", jitter.brightness, 1, strength, ends,
                "v: a factor from max(0, 1 - v) to 1 + v"),
      JitterKey("contrast", jitter.contrast, 1, strength, ends, "the same"),
      JitterKey("saturation", jitter.saturation, 1, strength, ends, "the same"),
      JitterKey("hue", jitter.hue, 0, FromTo(0, 0.5), FromTo(-0.5, 0.5),
                "v: a turn of the colour circle from -v to v"),
  };
  section.check = [&jitter](const YamlNode& map, const ReadContext& context) {
    CheckOrder({{"brightness", &jitter.brightness},
                {"contrast", &jitter.contrast},
                {"saturation", &jitter.saturation},
                {"hue", &jitter.hue}},
               map, context);
  };
  return section;
}

Section RandomErasingSection(data::RandomErasingSpec& erasing) {
  Section section;
  section.path = "data.augment.random_erasing";
  section.keys = {
      Number("p", erasing.p, FromTo(0, 1), "the share of images in which a box is erased"),
      RangeKey("scale", erasing.scale, FromTo(1e-6, 1), "the box's share of the image's area"),
      RangeKey("ratio", erasing.ratio, FromTo(1e-3, 1e3), "its height through its width"),
      ErasingValueKey(erasing),
  };
  section.check = [&erasing](const YamlNode& map, const ReadContext& context) {
    CheckOrder({{"scale", &erasing.scale}, {"ratio", &erasing.ratio}}, map, context);
  };
  return section;
}

}  // namespace

std::vector<Key> MixingKeys(AugmentConfig& augment) {
  const auto key = [](const char* name, const char* path, MixConfig& mix, const char* meaning) {
    Key made = Nested(name, MixSection(path, mix), meaning);
    // A section whose alpha is 0 does nothing, whatever its p is.
    made.WrittenIf([&mix] { return mix.alpha > 0; });
    return made;
  };
  return {key("mixup", "data.augment.mixup", augment.mixup,
              "blend each image of a batch with another, and their labels"),
          key("cutmix", "data.augment.cutmix", augment.cutmix,
              "paste a box of another image into each image of a batch, and mix their labels")};
}

void CheckMixing(AugmentConfig& augment, const YamlNode& map, const ReadContext& context) {
  MixConfig &mixup = augment.mixup, &cutmix = augment.cutmix;
  if (mixup.alpha == 0 || cutmix.alpha == 0) return;
  const auto given = [&](const char* name) {
    const YamlNode* section = map.Find(name);
    return section != nullptr && section->Find("p") != nullptr;
  };
  // A share that is not given is what the other leaves; where neither is given each has one half.
  if (!given("mixup")) mixup.p = given("cutmix") ? 1 - cutmix.p : 0.5;
  if (!given("cutmix")) cutmix.p = 1 - mixup.p;
  if (mixup.p + cutmix.p <= 1) return;
  context.problems.Add(*map.Find("cutmix"), Join(context.path, "cutmix"),
                       "mixup.p and cutmix.p together must be at most 1: a batch is mixed one way");
}

Key RangeKey(std::string name, data::Range& field, const Range& within, std::string meaning) {
  Key key = MakeKey(std::move(name), "[smallest, largest]", std::move(meaning));
  key.range = within.Text();
  key.schemas = {RangeSchema(within)};
  key.read = [&field, within](const YamlNode& node, const ReadContext& context) {
    ReadRange(node, within, field, context);
  };
  key.write = [&field]() -> std::optional<YamlNode> { return RangeNode(field); };
  return key;
}

Section AugmentSection(DataConfig& data) {
  AugmentConfig& augment = data.augment;
  Section section;
  section.path = "data.augment";
  section.keys = {
      Integer("pad", augment.pad, FromTo(0, 64),
              "black pixels added on every side before the crop"),
      Switch("random_crop", augment.random_crop,
             "cut the image's size, or data.center_crop, from a random place"),
      OptionalMap("random_resized_crop", data.changes.random_resized_crop, RandomResizedCropSection,
                  "cut a random part and resize it; replaces data.resize and data.center_crop in "
                  "training"),
      Switch("horizontal_flip", augment.horizontal_flip, "mirror an image with probability 1/2"),
      OptionalMap("color_jitter", data.changes.color_jitter, ColorJitterSection,
                  "change colours by random factors, in random order"),
      OptionalMap("random_erasing", data.changes.random_erasing, RandomErasingSection,
                  "erase a random box"),
      RandomScaleKey(data.changes.random_scale),
      SsdKey(data.changes.ssd),
  };
  for (Key& key : MixingKeys(augment)) section.keys.push_back(std::move(key));
  section.check = [&data](const YamlNode& map, const ReadContext& context) {
    CheckMixing(data.augment, map, context);
    const Entry* scale = map.FindEntry("random_scale");
    if (scale && (data.augment.pad > 0 || data.changes.random_resized_crop))
      context.problems.Add(scale->key, Join(context.path, "random_scale"),
                           "give either random_scale, or pad, or random_resized_crop");
    const Entry* crop = map.FindEntry("random_resized_crop");
    if (!crop || !data.augment.random_crop) return;
    context.problems.Add(crop->key, Join(context.path, "random_resized_crop"),
                         "give either random_crop or random_resized_crop, not both");
  };
  return section;
}

// The field has either the shorter side or both; reading one clears the other.
Key ResizeKey(data::ResizeTo& resize) {
  const Range range = FromTo(1, kMostPixels);
  Key key = MakeKey("resize", "integer or [height, width]",
                    "the length of the shorter side, or both sides: images are resized, bilinear "
                    "with antialias");
  key.range = range.Text();
  key.default_text = "none";
  key.schemas = {IntegerSchema(range), ListSchema({IntegerSchema(range)}, 2)};
  key.schemas.back().most = 2;
  // A number is the shorter side and a list both sides; SizeKey would read a number as a square.
  const auto to = std::make_shared<data::PictureSize>();
  const auto both = std::make_shared<Key>(SizeKey("resize", *to, ""));
  key.read = [&resize, to, both](const YamlNode& node, const ReadContext& context) {
    *to = {};
    both->read(node, context);
    const bool pair = node.kind == YamlNode::Kind::kList;
    resize = pair ? data::ResizeTo{0, *to} : data::ResizeTo{to->height, {}};
  };
  key.write = [&resize]() -> std::optional<YamlNode> {
    if (resize.shorter > 0) return Scalar(std::to_string(resize.shorter));
    if (!resize.any()) return std::nullopt;
    return List(
        {Scalar(std::to_string(resize.to.height)), Scalar(std::to_string(resize.to.width))});
  };
  return key;
}

Key CenterCropKey(data::PictureSize& crop) {
  return SizeKey("center_crop", crop,
                 "what is cut from the middle after that; with random_crop training cuts it from "
                 "anywhere")
      .Default("none");
}

}  // namespace ada::config
