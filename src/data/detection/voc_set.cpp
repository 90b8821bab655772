// Reads lists and annotations of all splits, then names the classes, then makes the data sets:
// without data.class_names the classes are known only when all annotations are read.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "data/detection/voc_files.h"
#include "data/images/picture.h"
#include "data/names.h"
#include "data/picture_files.h"
#include "data/readers.h"
#include "error.h"
#include "io/run_in_parallel.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::data {
namespace {

constexpr std::int64_t kImagesOfTask = 64;
// The names of a run's splits in messages, whatever its lists are called.
constexpr char kTrainSplit[] = "train", kValidationSplit[] = "validation", kTestSplit[] = "test";
constexpr std::size_t kNamedFaults = 3;  // of each kind, in the note

// What is wrong with files without ending the run: how often, and the first places.
struct FaultList {
  const char *one, *many;  // "box without area", and the same of several
  std::int64_t count = 0;
  std::vector<std::string> places = {};

  void Add(const std::string& place) {
    if (places.size() < kNamedFaults) places.push_back(place);
    ++count;
  }
  std::string Text() const {
    const std::int64_t more = count - static_cast<std::int64_t>(places.size());
    return std::to_string(count) + " " + (count == 1 ? one : many) + " (" +
           FirstNames(places, places.size()) +
           (more > 0 ? " and " + std::to_string(more) + " more" : "") + ")";
  }
};

// What is known of one listed image; filled in by one thread, in parallel with others.
struct VocImage {
  ListedImage listed;
  Annotation annotation;
  PictureSize size;                    // of the picture
  std::optional<PictureNeeds> header;  // of its file; unset: it cannot be read
  std::optional<BrokenImage> broken;   // it is left out
};

// An annotation that cannot be read is a fault of that file and not of the picture.
Annotation ReadBoxes(const std::string& xml) {
  try {
    return ReadAnnotation(xml);
  } catch (const DataError& error) {
    throw BrokenLabels(xml, error.what());
  }
}

// What is said of an annotation whose <size> is not that of the picture.
std::string OtherXmlSizeText(const std::string& xml, PictureSize said, const std::string& picture,
                             const PictureNeeds& read) {
  const std::string begin =
      xml + ": <size> is " + SizeText(said) + ", and " + picture + " has " + SizeText(read.size);
  const int orientation = read.traits.orientation;
  if (Turned(read.stored, orientation) == said)
    return begin + " as it is stored, which its EXIF orientation " + std::to_string(orientation) +
           " turns to " + SizeText(said) +
           ": the boxes are of the turned picture; set data.exif: apply, turn the picture itself "
           "(PIL's ImageOps.exif_transpose), or leave the image out with data.on_broken: skip";
  return begin + ": its boxes may be those of another picture" +
         (orientation == 1 ? ""
                           : " (it has EXIF orientation " + std::to_string(orientation) + ")") +
         "; mend the size, or leave the image out with data.on_broken: skip";
}

// Boxes of the picture as it is stored, where the rules turn it.
void TurnBoxes(const PictureNeeds& picture, Annotation* annotation) {
  for (AnnotatedObject& object : annotation->objects)
    object.box = Turned(object.box, picture.stored, picture.traits.orientation);
  annotation->size = picture.size;
}

// Everything about one image but its classes. DataError.
void ReadVocImage(const PictureRules& rules, VocImage* image) {
  RequireFiles(image->listed);
  const std::string& xml = image->listed.annotation;
  image->annotation = ReadBoxes(xml);
  const PictureSize said = image->annotation.size;
  PictureNeeds picture;
  try {
    picture = NeedsOfPictureFile(image->listed.picture, rules);
    image->size = picture.size;
    image->header = picture;
  } catch (const DataError&) {
    // Where the annotation says the size, a picture that cannot be read is no reason to stop here:
    // a check and a run with on_broken find it when they decode it.
    if (said == PictureSize{}) throw;
    image->size = said;  // decoding the picture will report its fault
    return;
  }
  if (said == PictureSize{} || said == image->size) return;
  if (said == picture.stored) return TurnBoxes(picture, &image->annotation);
  throw BrokenLabels(xml, OtherXmlSizeText(xml, said, image->listed.picture, picture),
                     FaultKind::kSize);
}

// Headers and annotations of a set are thousands of small files, which are read in parallel. An
// error of the machine ends the reading whatever is skipped.
std::vector<VocImage> ReadVocImages(std::vector<ListedImage> listed, const FileChoices& choices) {
  std::vector<VocImage> images(listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) images[i].listed = std::move(listed[i]);
  const auto count = static_cast<std::int64_t>(images.size());
  RunRangesInParallel(count, kImagesOfTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const auto read = [&] { ReadVocImage(choices.pictures, &images[i]); };
      BrokenImage broken;
      if (!choices.goes_on())
        read();
      else if (!Usable(static_cast<std::int64_t>(i), images[i].listed.picture, &broken, read))
        images[i].broken = std::move(broken);
    }
  });
  return images;
}

using VocSplits = std::vector<std::pair<std::string, std::vector<VocImage>>>;

std::vector<std::string> NamesInAnnotations(const VocSplits& splits) {
  std::set<std::string> names;
  for (const auto& [split, images] : splits)
    for (const VocImage& image : images)
      for (const AnnotatedObject& object : image.annotation.objects) names.insert(object.name);
  return {names.begin(), names.end()};
}

using LabelsByName = std::map<std::string, int, std::less<>>;

// Labels follow the order of the names; a name that is there twice was refused before.
LabelsByName LabelsOf(const std::vector<std::string>& names) {
  LabelsByName labels;
  for (const std::string& name : names) labels.emplace(name, static_cast<int>(labels.size()));
  ADA_CHECK(labels.size() == names.size());
  return labels;
}

// Returns the label of an object; a class that nobody named is a fault of the annotation.
int LabelOfObject(const LabelsByName& labels, const AnnotatedObject& object,
                  const std::string& xml) {
  const auto found = labels.find(object.name);
  if (found != labels.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, label] : labels) known.push_back(name);
  const std::string nearest = NearestName(object.name, known);
  throw BrokenLabels(
      xml,
      xml + ": line " + std::to_string(object.line) + ": the class " + Shown(object.name) +
          " is not among data.class_names" +
          (nearest.empty() ? "" : "; did you mean '" + nearest + "'?") +
          "; add it there, mend the file, or leave the image out with data.on_broken: skip",
      FaultKind::kLabel);
}

// Faults found while a split is read.
struct VocFaults {
  std::string split;
  FileFaults* all;  // null: nobody asks for each
  FaultList empty{"box without area", "boxes without area"},
      inverted{"inverted box", "inverted boxes"},
      outside{"box outside its picture", "boxes outside their pictures"},
      beyond{"box that reaches beyond its picture", "boxes that reach beyond their pictures"},
      sizeless{"file without the picture's size", "files without the picture's size"};

  void Add(FaultList* list, const VocImage& image, const AnnotatedObject& object) {
    const std::string& xml = image.listed.annotation;
    list->Add(xml + ": line " + std::to_string(object.line));
    if (all != nullptr)
      all->push_back({FaultKind::kBox, false, split, xml,
                      "line " + std::to_string(object.line) + ": " + list->one + " (" +
                          Visible(object.name) + ")"});
  }

  // Sorts a box into the first kind that fits it. A box that is all right belongs to none.
  void Classify(const VocImage& image, const AnnotatedObject& object) {
    const vision::Box& box = object.box;
    const auto height = static_cast<float>(image.size.height);
    const auto width = static_cast<float>(image.size.width);
    if (box.y1 < box.y0 || box.x1 < box.x0)
      Add(&inverted, image, object);
    else if (box.y1 == box.y0 || box.x1 == box.x0)
      Add(&empty, image, object);
    else if (box.y1 <= 0 || box.x1 <= 0 || box.y0 >= height || box.x0 >= width)
      Add(&outside, image, object);
    else if (box.y0 < 0 || box.x0 < 0 || box.y1 > height || box.x1 > width)
      Add(&beyond, image, object);
  }

  // An evaluation judges all boxes, and its loss is that of training.
  void AddTo(std::string* note) const {
    const auto add = [&](const FaultList& faults, const std::string& what_is_done) {
      if (faults.count == 0) return;
      AddNote(note, "split " + split + ": " + faults.Text() + ": " + what_is_done);
    };
    const std::string where = split == kTrainSplit ? "training" : "the loss";
    add(empty, "left out of " + where);
    add(inverted, "left out of " + where);
    add(outside, "left out of " + where);
    add(beyond, "cut off there for " + where);
    add(sizeless, "the picture's own size is taken");
  }
};

// Makes a split of the images that can be used. Their numbers in the store, the boxes and the
// headers must agree, so images that are left out appear in none of the three.
Dataset MakeVocDataset(const std::string& split, std::vector<VocImage> images,
                       const LabelsByName& labels, const FileChoices& choices, std::string* note) {
  const bool goes_on = choices.goes_on();
  Dataset dataset;
  dataset.name = "voc";
  dataset.channels = 3;
  dataset.classes = static_cast<int>(labels.size());
  auto objects = std::make_shared<std::vector<ImageObjects>>();
  NameList files;
  VocFaults faults{split, choices.faults};
  for (VocImage& image : images) {
    ImageObjects of{image.listed.name, image.size, {}};
    const auto name_classes = [&] {
      for (const AnnotatedObject& object : image.annotation.objects)
        of.boxes.push_back(
            {object.box, LabelOfObject(labels, object, image.listed.annotation), object.difficult});
    };
    BrokenImage broken;
    if (!goes_on)
      name_classes();
    else if (!Usable(0, image.listed.picture, &broken, name_classes))
      image.broken = std::move(broken);
    if (image.broken) {
      if (choices.faults != nullptr)
        choices.faults->push_back({image.broken->kind, !choices.skip_broken, split,
                                   image.broken->file, image.broken->message});
      dataset.left_out.push_back(std::move(*image.broken));
      continue;
    }
    if (image.annotation.size == PictureSize{}) faults.sizeless.Add(image.listed.annotation);
    for (const AnnotatedObject& object : image.annotation.objects) faults.Classify(image, object);
    files.Add(image.listed.folder, image.listed.file);
    objects->push_back(std::move(of));
  }
  // A check goes on to the next split; for a run a split without images is an error.
  if (objects->empty() && choices.faults != nullptr) return {};
  if (objects->empty())
    throw DataError("data.path: none of the images that split " + split +
                    " lists can be used; the first: " + dataset.left_out.front().message);
  faults.AddTo(note);
  dataset.height = objects->front().size.height, dataset.width = objects->front().size.width;
  // A label of 0 for each image: their number is what counts images of a set with boxes.
  dataset.labels.resize(objects->size());
  const auto store = std::make_shared<PictureFiles>("", std::move(files), choices.pictures);
  std::int64_t number = 0;
  for (const VocImage& image : images) {
    if (image.broken) continue;
    if (image.header) store->KnowHeader(number, *image.header);
    ++number;
  }
  dataset.store = store;
  dataset.objects = std::move(objects);
  return dataset;
}

// VOC trains on `trainval` and tests on `test`. A set without a list `test`, as those from 2008 on
// are published, or without `trainval`, is trained on `train` and tested on `val`, whose images
// `trainval` has as well.
SplitsOfSet SplitsOfVoc(const std::vector<std::string>& years, const FileChoices& choices) {
  const auto is_there = [&](const std::string& name) { return HasList(years, name); };
  const std::vector<std::string>& others = ValidationNames();
  const bool has_parts = is_there("train") && std::any_of(others.begin(), others.end(), is_there);
  const bool has_test = choices.test.empty() ? is_there("test") : !Contains(others, choices.test);
  const bool published = is_there("trainval") && (has_test || !has_parts);
  return SplitsByNames(choices, published || !is_there("train") ? "trainval" : "train", "test",
                       published, is_there);
}

// Lists may share images, which then are evaluated though they were trained on.
void WarnOfSharedImages(const VocSplits& splits, std::vector<std::string>* warnings) {
  std::set<std::string> trained;  // annotations, whose paths differ between years
  for (const auto& [split, images] : splits)
    for (const VocImage& image : images)
      if (split == kTrainSplit) trained.insert(image.listed.annotation);
  for (const auto& [split, images] : splits) {
    if (split == kTrainSplit) continue;
    const auto shared = std::count_if(images.begin(), images.end(), [&](const VocImage& image) {
      return trained.contains(image.listed.annotation);
    });
    if (shared > 0)
      warnings->push_back(std::to_string(shared) + " of " + std::to_string(images.size()) +
                          " images of split " + split +
                          " are in the list of split train as well (data.splits)");
  }
}

}  // namespace

Splits OpenVoc(const std::string& path, const FileChoices& choices) {
  std::vector<std::string> paths = {path};
  paths.insert(paths.end(), choices.more_paths.begin(), choices.more_paths.end());
  const std::vector<std::string> years = YearFolders(paths);
  const SplitsOfSet names = SplitsOfVoc(years, choices);
  Splits splits;
  VocSplits read;
  const auto list = [&](const std::string& split, const std::string& name) {
    if (name.empty()) return;
    read.emplace_back(split, ReadVocImages(ListImages(years, name, &splits.note), choices));
  };
  list(kTrainSplit, names.train);
  list(kValidationSplit, names.validation);
  list(kTestSplit, names.test);
  WarnOfSharedImages(read, &splits.warnings);
  splits.class_names = choices.class_names.empty() ? NamesInAnnotations(read) : choices.class_names;
  if (splits.class_names.empty())
    throw DataError(path + ": no annotation has an object; expected some, or data.class_names");
  const LabelsByName labels = LabelsOf(splits.class_names);
  for (auto& [split, images] : read) {
    Dataset dataset = MakeVocDataset(split, std::move(images), labels, choices, &splits.note);
    (split == kTrainSplit  ? splits.train
     : split == kTestSplit ? splits.test
                           : splits.validation) = std::move(dataset);
  }
  return splits;
}

}  // namespace ada::data
