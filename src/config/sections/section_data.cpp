// The keys of `data`: which images, and how they become batches.
// data/catalog.h has a row for each data set, and most limits of keys to some data sets are
// questions to these rows, so a data set that is added there gets its keys without a change here.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

const EnumNames<BrokenImages> kBrokenImages = {{"fail", BrokenImages::kFail},
                                               {"skip", BrokenImages::kSkip}};

const EnumNames<bool> kExifRules = {{"ignore", false}, {"apply", true}};

const EnumNames<data::SixteenBit> kSixteenBits = {{"clip", data::SixteenBit::kClip},
                                                  {"scale", data::SixteenBit::kScale}};

const EnumNames<data::ArrayLayout> kArrayLayouts = {{"auto", data::ArrayLayout::kAuto},
                                                    {"hwc", data::ArrayLayout::kHwc},
                                                    {"chw", data::ArrayLayout::kChw}};

const EnumNames<data::TokenType> kTokenTypes = {{"auto", data::TokenType::kAuto},
                                                {"uint16", data::TokenType::kUint16},
                                                {"uint32", data::TokenType::kUint32}};

// The names of the data sets of which `holds` is true, in the order of the catalog.
Names DatasetsWhere(bool (*holds)(const data::DatasetFacts&)) {
  Names names;
  for (const data::DatasetFacts& facts : data::Catalog()) {
    if (holds(facts)) names.emplace_back(facts.name);
  }
  return names;
}

// Whether there are as many numbers as channels is checked by CheckNormalize, once the data set is
// known.
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

// The numbers that the word `standard` stands for; those of images that are made are known when
// they are.
std::string StandardNumbers(const std::string& dataset) {
  for (const data::DatasetFacts& facts : data::Catalog())
    if (facts.name == dataset && !facts.mean.empty()) return data::NormalizationText(facts);
  return "";
}

// Takes a word or a map; it needs the whole of `data` because the comment that is written depends
// on the data set.
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
    } else if (IsWord(node, "standard")) {
      normalize.kind = Kind::kStandard;
    } else if (IsWord(node, "none")) {
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
    // The numbers are written as a comment into config.yaml, so a reader need not look for them.
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

// Made-up images need no files: they are for tests, trials and timings.
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
    // They are made in memory at the start of the run.
    constexpr double kLimit = 17'179'869'184.0;  // 16 GiB of pixels
    const double bytes = static_cast<double>(synthetic.height) * synthetic.width *
                         synthetic.channels * static_cast<double>(synthetic.train + synthetic.test);
    if (bytes > kLimit) {
      context.problems.Add(map, context.path, "these images would take more than 16 GiB");
    }
  };
  return section;
}

// A path, or several of a data set that has several years.
// Whether files are there is not looked at here: a configuration can be checked on another machine.
Key PathKey(DataConfig& data) {
  Key key = MakeKey("path", "text or list of texts",
                    "folder of its files (tensors: the file), from the working directory; `~` and "
                    "${VAR} expand, ${ADA_DATA} to `data` where it is not set; voc: also a list of "
                    "folders, one a year; text, tokens: a file, a folder, a pattern of names "
                    "(texts/*.txt), or a list of these");
  key.schemas = {TextSchema(""), ListSchema({TextSchema("")}, 1)};
  // Each path is read by the rules of a single one: text, not empty, with `~` and ${VAR} expanded.
  const auto one = [](std::string& field) { return Text("path", field, "", ExpandPath); };
  key.read = [&data, one](const YamlNode& node, const ReadContext& context) {
    if (node.kind != YamlNode::Kind::kList) return one(data.path).read(node, context);
    if (node.items.empty())
      return context.problems.Add(node, context.path, "expected at least one folder; got none");
    std::vector<std::string> paths(node.items.size());
    for (std::size_t i = 0; i < paths.size(); ++i)
      one(paths[i]).read(node.items[i], {context.problems, context.path, node.items[i]});
    data.path = paths.front();
    data.more_paths.assign(paths.begin() + 1, paths.end());
  };
  key.write = [&data]() -> std::optional<YamlNode> {
    if (data.path.empty()) return std::nullopt;
    if (data.more_paths.empty()) return TextNode(data.path);
    std::vector<YamlNode> items = {TextNode(data.path)};
    for (const std::string& path : data.more_paths) items.push_back(TextNode(path));
    return List(std::move(items));
  };
  return key;
}

// Empty names leave the choice to the data set, which takes what its folder or lists have.
Section SplitsSection(SplitsConfig& splits) {
  Section section;
  section.path = "data.splits";
  section.keys = {
      Text("train", splits.train, "what is trained on")
          .Default("camvid: train; voc: trainval, or train where there is no test"),
      Text("test", splits.test, "what is evaluated as split `test`")
          .Default("test, or else val, valid, validation or dev"),
      Text("validation", splits.validation,
           "what is evaluated as split `validation`, by which the best checkpoint is chosen")
          .Default("val, valid, validation or dev beside test; of CamVid's classes and beside "
                   "trainval: none"),
  };
  return section;
}

// A number or the word `none`.
Key IgnoredLabelKey(std::optional<int>& field) {
  const Range range = FromTo(0, 255);
  Key key = MakeKey("ignored_label", "integer or word",
                    "label of pixels without a class, which loss and evaluation pass over");
  key.range = range.Text() + ", none";
  key.default_text = "11 where the classes are CamVid's, else 255";
  key.schemas = {IntegerSchema(range), WordSchema({"none"})};
  key.read = [&field, range](const YamlNode& node, const ReadContext& context) {
    if (IsWord(node, "none")) {
      field = -1;
      return;
    }
    long long value = 0;
    const std::string refusal = ReadInteger(node, range, value);
    if (!refusal.empty()) return context.problems.Add(node, context.path, refusal);
    field = static_cast<int>(value);
  };
  key.write = [&field]() -> std::optional<YamlNode> {
    if (!field) return std::nullopt;
    return Scalar(*field < 0 ? "none" : std::to_string(*field));
  };
  return key;
}

// A number of images, or a share of them.
Key ValidationKey(DataConfig& data) {
  const Range count = FromTo(0, 1e9), share = Inside(0, 1);
  Key key = MakeKey("validation", "integer or number",
                    "last N training images, or a share of each class drawn by the seed, held back "
                    "and evaluated as split `validation` (folder without a second split: `test`); "
                    "of text and tokens the last share of the text");
  key.range = "0 to 1000000000, or a share above 0 and below 1";
  key.schemas = {IntegerSchema(count), NumberSchema(share)};
  key.read = [&data, count, share](const YamlNode& node, const ReadContext& context) {
    double number = 0;
    long long whole = 0;
    // 0 and 1 are numbers of images; a share lies strictly between them.
    if (ReadInteger(node, count, whole).empty()) {
      data.validation = whole;
      data.validation_share = 0;
    } else if (ReadNumber(node, share, number).empty()) {
      data.validation = 0;
      data.validation_share = number;
    } else {
      context.problems.Add(
          node, context.path,
          Expected("a whole number, 0 to 1000000000, or a share above 0 and below 1", node) +
              QuotedHint(node));
    }
  };
  key.write = [&data]() -> std::optional<YamlNode> {
    if (data.validation_share > 0) return Scalar(NumberText(data.validation_share));
    return Scalar(std::to_string(data.validation));
  };
  return key;
}

// A text has no countable samples, so only a share of it can be held back.
void CheckShare(const DataConfig& data, const YamlNode& map, const ReadContext& context) {
  const YamlNode* validation = map.Find("validation");
  if (validation == nullptr) return;
  if (data::FactsOf(data.dataset).has_tokens() && data.validation > 0)
    context.problems.Add(*validation, Join(context.path, "validation"),
                         "expected a share of the text, 0 or more and below 1; got " +
                             std::to_string(data.validation));
}

// A data set whose reader opens one folder would pass over the others.
void CheckPaths(const DataConfig& data, const YamlNode& map, const ReadContext& context) {
  const data::DatasetFacts& facts = data::FactsOf(data.dataset);
  const bool of_the_user = facts.origin == data::Origin::kBoxes || facts.has_tokens();
  if (data.more_paths.empty() || (of_the_user && facts.folder.empty())) return;
  context.problems.Add(*map.Find("path"), Join(context.path, "path"),
                       "expected one path, since dataset is " + data.dataset +
                           "; voc, text and tokens alone take a list");
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

// A row of 0 means that only the files say it.
int ChannelsOf(const DataConfig& data) {
  const data::DatasetFacts& facts = data::FactsOf(data.dataset);
  return facts.has_path() ? facts.channels : data.synthetic.channels;
}

int ClassesOf(const DataConfig& data) {
  const data::DatasetFacts& facts = data::FactsOf(data.dataset);
  return facts.has_path() ? facts.classes : data.synthetic.classes;
}

// The groups of data sets below are asked of the catalog; `with_truth` are the two with label
// images or boxes in files of their own.
Section DataSection(DataConfig& data) {
  const Names all = DatasetsWhere([](const data::DatasetFacts&) { return true; });
  const Names read = DatasetsWhere([](const data::DatasetFacts& f) { return f.has_path(); });
  // Data sets that `fetch` cannot download, so that only the user can say where they are.
  const Names of_the_user =
      DatasetsWhere([](const data::DatasetFacts& f) { return f.has_path() && f.folder.empty(); });
  const Names made =
      DatasetsWhere([](const data::DatasetFacts& f) { return f.origin == data::Origin::kSeed; });
  const Names decoded = DatasetsWhere([](const data::DatasetFacts& f) { return f.decodes(); });
  const Names with_truth = {"camvid", "voc"};
  const Names images = DatasetsWhere([](const data::DatasetFacts& f) { return !f.has_tokens(); });
  const Names windows = DatasetsWhere([](const data::DatasetFacts& f) { return f.has_tokens(); });
  const Names texts =
      DatasetsWhere([](const data::DatasetFacts& f) { return f.origin == data::Origin::kText; });
  Section section;
  section.path = "data";
  section.discriminator = "dataset";
  section.choices = all;
  section.where = &data.where;
  section.keys = {
      WordText("dataset", data.dataset, all, "the data set").Required(),
      PathKey(data)
          .For(read)
          .RequiredFor(of_the_user)
          .Default("required; of sets that `ada-train fetch` knows: their folder in $ADA_DATA, or "
                   "in `data`"),
      Nested("splits", SplitsSection(data.splits),
             "names of the splits, in the folder or its lists")
          .For(with_truth)
          .WrittenIf([&data] {
            const SplitsConfig& s = data.splits;
            return !s.train.empty() || !s.test.empty() || !s.validation.empty();
          }),
      TextList("class_names", data.class_names, {},
               "what the classes are called, in the order of their labels")
          .For(with_truth)
          .Default("camvid: CamVid's eleven; voc: those of the annotations, in byte order")
          .WrittenIf([&data] { return !data.class_names.empty(); }),
      IgnoredLabelKey(data.ignored_label).For({"camvid"}),
      LabelValuesKey(data).For({"camvid"}),
      Choice("exif", data.pictures.applies_exif, kExifRules,
             "apply: pictures are turned as their EXIF orientation says; boxes and label images "
             "too, where their size is that of the picture as it is stored")
          .For(decoded),
      Choice("sixteen_bit", data.pictures.sixteen_bit, kSixteenBits,
             "16-bit PNG: clip: as PIL, grey above 255 is white, of all others the high "
             "byte; scale: v / 257, rounded")
          .For(decoded),
      Choice("layout", data.layout, kArrayLayouts,
             "axes of images [n, ?, ?, ?]: hwc: rows, columns, channels; chw: channels first; "
             "auto: by the axis of at most 4 values")
          .For({"tensors"}),
      WordText("tokens", data.tokens, {"bytes"}, "what the tokens of a text are").For(texts),
      Choice("element", data.element, kTokenTypes,
             "the numbers of a file; auto: what the header of llm.c or NumPy says, else "
             "uint16")
          .For({"tokens"}),
      Integer("vocabulary", data.vocabulary, FromTo(0, data::kMostTokens),
              "task language: tokens are below it; 0: as many as the files use")
          .For({"tokens", "tensors"})
          .WrittenIf([&data] { return data.vocabulary > 0; }),
      Integer("context", data.context, FromTo(1, data::kLongestSequence), "tokens of a sequence")
          .For(windows)
          .RequiredFor(windows)
          .Default("required"),
      Nested("synthetic", SyntheticSection(data.synthetic), "shape and size of made-up images")
          .For(made),
      Integer("batch_size", data.batch_size, FromTo(1, 1'000'000),
              "images, or sequences, per weight update; a multiple of train.accumulate"),
      Integer("evaluate_batch_size", data.evaluate_batch_size, FromTo(1, 1'000'000),
              "images, or sequences, per batch of an evaluation")
          .Default("256; of sequences as many as have 32768 tokens, at most 256"),
      Switch("shuffle", data.shuffle,
             "a new order every epoch, of text and tokens windows from random places; false: file "
             "order"),
      Switch("drop_last", data.drop_last,
             "leave out a last batch that is not full (training only, after `limit`)"),
      NormalizeKey(data).For(images),
      ResizeKey(data.changes.resize).For(images),
      CenterCropKey(data.changes.center_crop).For(images),
      Nested("augment", AugmentSection(data), "random changes of training images").For(images),
      Nested("limit", LimitSection(data.limit), "use only the first images"),
      ValidationKey(data),
      Integer("workers", data.workers, FromTo(0, 256),
              "threads that make batches ahead; 0: none, the training thread makes them")
          .Default("1; folder, camvid, voc: one per core, at most 8"),
      Choice("on_broken", data.on_broken, kBrokenImages,
             "an image whose picture, label image or annotation cannot be used ends the run, or is "
             "left out, counted and named")
          .For(decoded),
  };
  // Each of them checks keys that do not fit together, and reports the one to remove.
  section.check = [&data](const YamlNode& map, const ReadContext& context) {
    CheckPaths(data, map, context);
    CheckCrops(data, map, context);
    CheckShare(data, map, context);
    CheckLabelValues(data, map, context);
    CheckAugmentWithLabels(data, map, context);
  };
  return section;
}

}  // namespace ada::config
