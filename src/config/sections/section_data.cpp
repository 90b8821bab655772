// The keys of `data`: which images, and how they become batches.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

const EnumNames<BrokenImages> kBrokenImages = {{"fail", BrokenImages::kFail},
                                               {"skip", BrokenImages::kSkip}};

Names DatasetsWhere(bool (*holds)(const data::DatasetFacts&)) {
  Names names;
  for (const data::DatasetFacts& facts : data::Catalog()) {
    if (holds(facts)) names.emplace_back(facts.name);
  }
  return names;
}

Section CustomNormalizeSection(NormalizeConfig& normalize) {
  Section section;
  section.path = "data.normalize";
  section.keys = {
      NumberList("mean", normalize.mean, AnyNumber(), "mean of pixels / 255, one per channel")
          .Required(),
      NumberList("std", normalize.std, Above(0), "their standard deviation, one per channel")
          .Required(),
  };
  return section;
}

// The numbers behind the word `standard`; those of images that are made are known when they are.
std::string StandardNumbers(const std::string& dataset) {
  for (const data::DatasetFacts& facts : data::Catalog())
    if (facts.name == dataset && !facts.mean.empty()) return data::NormalizationText(facts);
  return "";
}

Key NormalizeKey(DataConfig& data) {
  using Kind = NormalizeConfig::Kind;
  NormalizeConfig& normalize = data.normalize;
  Key key = MakeKey("normalize", "word or map",
                    "standard: the data set's own mean and standard deviation; none: pixels / 255; "
                    "or numbers, one per channel");
  key.range = "standard, none, {mean: [...], std: [...]}";
  key.schemas = {WordSchema({"standard", "none"}),
                 MapSchema([] { return ExampleSection<NormalizeConfig>(CustomNormalizeSection); })};
  key.read = [&normalize](const YamlNode& node, const ReadContext& context) {
    if (node.kind == YamlNode::Kind::kMap) {
      normalize.kind = Kind::kCustom;
      ReadSection(node, CustomNormalizeSection(normalize), context);
    } else if (node.kind == YamlNode::Kind::kScalar && node.text == "standard") {
      normalize.kind = Kind::kStandard;
    } else if (node.kind == YamlNode::Kind::kScalar && node.text == "none") {
      normalize.kind = Kind::kNone;
    } else {
      context.problems.Add(node, context.path,
                           Expected("standard, none or {mean: [...], std: [...]}", node));
    }
  };
  key.write = [&data, &normalize]() -> std::optional<YamlNode> {
    if (normalize.kind == Kind::kCustom) return WriteSection(CustomNormalizeSection(normalize));
    if (normalize.kind == Kind::kNone) return Scalar("none");
    YamlNode standard = Scalar("standard");
    standard.comment = StandardNumbers(data.dataset);
    return standard;
  };
  return key;
}

Section LimitSection(LimitConfig& limit) {
  Section section;
  section.path = "data.limit";
  section.keys = {
      Integer("train", limit.train, FromTo(0, 1e9), "first N training images; 0: all"),
      Integer("test", limit.test, FromTo(0, 1e9), "first N test images; 0: all"),
  };
  return section;
}

Section SyntheticSection(data::SyntheticSpec& synthetic) {
  Section section;
  section.path = "data.synthetic";
  section.keys = {
      Integer("height", synthetic.height, FromTo(1, 1024), "rows of an image"),
      Integer("width", synthetic.width, FromTo(1, 1024), "columns of an image"),
      Integer("channels", synthetic.channels, FromTo(1, 64), "channels of an image"),
      Integer("classes", synthetic.classes, FromTo(2, 256), "classes, each with its own pattern"),
      Integer("train", synthetic.train, FromTo(1, 10'000'000), "training images"),
      Integer("test", synthetic.test, FromTo(1, 10'000'000), "test images"),
  };
  section.check = [&synthetic](const YamlNode& map, const ReadContext& context) {
    constexpr double kLimit = 17'179'869'184.0;  // 16 GiB of pixels
    const double bytes = static_cast<double>(synthetic.height) * synthetic.width *
                         synthetic.channels * static_cast<double>(synthetic.train + synthetic.test);
    if (bytes > kLimit) {
      context.problems.Add(map, context.path, "these images would take more than 16 GiB");
    }
  };
  return section;
}

// Training and evaluation give the network images of one size.
void CheckCrops(const DataConfig& data, const YamlNode& map, const ReadContext& context) {
  const data::ImageChanges& changes = data.changes;
  const Entry* crop = map.FindEntry("center_crop");
  if (!crop || !changes.crops() || !changes.random_resized_crop) return;
  if (changes.random_resized_crop->size == changes.center_crop) return;
  context.problems.Add(crop->key, Join(context.path, "center_crop"),
                       "differs from augment.random_resized_crop.size; the network takes one size");
}

}  // namespace

int ChannelsOf(const DataConfig& data) {
  const data::DatasetFacts& facts = data::FactsOf(data.dataset);
  return facts.has_path() ? facts.channels : data.synthetic.channels;
}

int ClassesOf(const DataConfig& data) {
  const data::DatasetFacts& facts = data::FactsOf(data.dataset);
  return facts.has_path() ? facts.classes : data.synthetic.classes;
}

Section DataSection(DataConfig& data) {
  const Names all = DatasetsWhere([](const data::DatasetFacts&) { return true; });
  const Names read = DatasetsWhere([](const data::DatasetFacts& f) { return f.has_path(); });
  const Names made =
      DatasetsWhere([](const data::DatasetFacts& f) { return f.origin == data::Origin::kSeed; });
  Section section;
  section.path = "data";
  section.discriminator = "dataset";
  section.choices = all;
  section.where = &data.where;
  section.keys = {
      WordText("dataset", data.dataset, all, "the data set").Required(),
      Text("path", data.path,
           "folder of its files (tensors: the file), from the working directory; `~` and ${VAR} "
           "expand",
           ExpandPath)
          .For(read)
          .RequiredFor(read)
          .Default("required"),
      Nested("synthetic", SyntheticSection(data.synthetic), "shape and size of made-up images")
          .For(made),
      Integer("batch_size", data.batch_size, FromTo(1, 1'000'000),
              "images per weight update; a multiple of train.accumulate"),
      Integer("evaluate_batch_size", data.evaluate_batch_size, FromTo(1, 1'000'000),
              "images per batch of an evaluation"),
      Switch("shuffle", data.shuffle, "a new order every epoch; false: file order"),
      Switch("drop_last", data.drop_last,
             "leave out a last batch that is not full (training only, after `limit`)"),
      NormalizeKey(data),
      ResizeKey(data.changes.resize),
      CenterCropKey(data.changes.center_crop),
      Nested("augment", AugmentSection(data), "random changes of training images"),
      Nested("limit", LimitSection(data.limit), "use only the first images"),
      Integer("validation", data.validation, FromTo(0, 1e9),
              "last N training images held back and evaluated as split `validation`"),
      Integer("workers", data.workers, FromTo(0, 256),
              "threads that make batches ahead; 0: none, the training thread makes them")
          .Default("1; folder: one per core, at most 8"),
      Choice("on_broken", data.on_broken, kBrokenImages,
             "a picture that cannot be read ends the run, or is left out, counted and named")
          .For({"folder"}),
  };
  section.check = [&data](const YamlNode& map, const ReadContext& context) {
    CheckCrops(data, map, context);
  };
  return section;
}

}  // namespace ada::config
