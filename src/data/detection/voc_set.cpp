#include "data/detection/voc_set.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/run_in_parallel.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/detection/annotation.h"
#include "data/detection/image_lists.h"
#include "data/picture_files.h"

namespace ada::data {
namespace {

constexpr std::int64_t kImagesOfTask = 64;
// What the splits of a run are called in messages, whatever its lists are.
constexpr char kTrainSplit[] = "train", kTestSplit[] = "test";
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

struct VocImage {
  ListedImage listed;
  Annotation annotation;
  PictureSize size;                   // of the picture
  std::optional<BrokenImage> broken;  // it is left out
};

Annotation ReadBoxes(const std::string& xml) {
  try {
    return ReadAnnotation(xml);
  } catch (const DataError& error) {
    throw BrokenTruth(xml, error.what());
  }
}

// Everything about one image but its classes. DataError.
void ReadVocImage(VocImage* image) {
  RequireFiles(image->listed);
  const std::string& xml = image->listed.annotation;
  image->annotation = ReadBoxes(xml);
  const PictureSize said = image->annotation.size;
  try {
    image->size = SizeInPictureFile(image->listed.picture);
  } catch (const DataError&) {
    if (said == PictureSize{}) throw;
    image->size = said;  // whoever decodes the picture says what is wrong with it
    return;
  }
  if (said == PictureSize{} || said == image->size) return;
  throw BrokenTruth(xml, xml + ": <size> is " + SizeText(said) + ", and " + image->listed.picture +
                             " has " + SizeText(image->size) +
                             ": its boxes may be those of another picture; mend the size, or leave "
                             "the image out with data.on_broken: skip");
}

std::vector<VocImage> ReadVocImages(std::vector<ListedImage> listed, bool skip_broken) {
  std::vector<VocImage> images(listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) images[i].listed = std::move(listed[i]);
  const auto count = static_cast<std::int64_t>(images.size());
  RunRangesInParallel(count, kImagesOfTask, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const auto read = [&] { ReadVocImage(&images[i]); };
      BrokenImage broken;
      if (!skip_broken)
        read();
      else if (!Usable(static_cast<std::int64_t>(i), images[i].listed.picture, &broken, read))
        images[i].broken = std::move(broken);
    }
  });
  return images;
}

std::vector<std::string> NamesInAnnotations(const std::vector<VocImage>& train,
                                            const std::vector<VocImage>& test) {
  std::set<std::string> names;
  for (const std::vector<VocImage>* images : {&train, &test})
    for (const VocImage& image : *images)
      for (const AnnotatedObject& object : image.annotation.objects) names.insert(object.name);
  return {names.begin(), names.end()};
}

using LabelsByName = std::map<std::string, int, std::less<>>;

LabelsByName LabelsOf(const std::vector<std::string>& names) {
  LabelsByName labels;
  for (const std::string& name : names) labels.emplace(name, static_cast<int>(labels.size()));
  ADA_CHECK(labels.size() == names.size());
  return labels;
}

int LabelOfObject(const LabelsByName& labels, const AnnotatedObject& object,
                  const std::string& xml) {
  const auto found = labels.find(object.name);
  if (found != labels.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, label] : labels) known.push_back(name);
  const std::string nearest = NearestName(object.name, known);
  throw BrokenTruth(
      xml, xml + ": line " + std::to_string(object.line) + ": the class " + Shown(object.name) +
               " is not among data.class_names" +
               (nearest.empty() ? "" : "; did you mean '" + nearest + "'?") +
               "; add it there, mend the file, or leave the image out with data.on_broken: skip");
}

// What is found out about a split on the way.
struct VocFaults {
  FaultList empty{"box without area", "boxes without area"},
      inverted{"inverted box", "inverted boxes"},
      outside{"box outside its picture", "boxes outside their pictures"},
      beyond{"box that reaches beyond its picture", "boxes that reach beyond their pictures"},
      sizeless{"file without the picture's size", "files without the picture's size"};

  void Look(const VocImage& image, const AnnotatedObject& object) {
    const vision::Box& box = object.box;
    const std::string place = image.listed.annotation + ": line " + std::to_string(object.line);
    const auto height = static_cast<float>(image.size.height);
    const auto width = static_cast<float>(image.size.width);
    if (box.y1 < box.y0 || box.x1 < box.x0)
      inverted.Add(place);
    else if (box.y1 == box.y0 || box.x1 == box.x0)
      empty.Add(place);
    else if (box.y1 <= 0 || box.x1 <= 0 || box.y0 >= height || box.x0 >= width)
      outside.Add(place);
    else if (box.y0 < 0 || box.x0 < 0 || box.y1 > height || box.x1 > width)
      beyond.Add(place);
  }

  // An evaluation judges all boxes, and its loss is that of training.
  void AddTo(const std::string& split, std::string* note) const {
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

Dataset MakeVocDataset(const std::string& split, std::vector<VocImage> images,
                       const LabelsByName& labels, bool skip_broken, std::string* note) {
  Dataset dataset;
  dataset.name = "voc";
  dataset.channels = 3;
  dataset.classes = static_cast<int>(labels.size());
  auto objects = std::make_shared<std::vector<ImageObjects>>();
  NameList files;
  VocFaults faults;
  for (VocImage& image : images) {
    ImageObjects of{image.listed.name, image.size, {}};
    const auto name_classes = [&] {
      for (const AnnotatedObject& object : image.annotation.objects)
        of.boxes.push_back(
            {object.box, LabelOfObject(labels, object, image.listed.annotation), object.difficult});
    };
    BrokenImage broken;
    if (!skip_broken)
      name_classes();
    else if (!Usable(0, image.listed.picture, &broken, name_classes))
      image.broken = std::move(broken);
    if (image.broken) {
      dataset.left_out.push_back(std::move(*image.broken));
      continue;
    }
    if (image.annotation.size == PictureSize{}) faults.sizeless.Add(image.listed.annotation);
    for (const AnnotatedObject& object : image.annotation.objects) faults.Look(image, object);
    files.Add(image.listed.folder, image.listed.file);
    objects->push_back(std::move(of));
  }
  if (objects->empty())
    throw DataError("data.path: none of the images that split " + split +
                    " lists can be used; the first: " + dataset.left_out.front().message);
  faults.AddTo(split, note);
  dataset.height = objects->front().size.height, dataset.width = objects->front().size.width;
  dataset.labels.resize(objects->size());
  dataset.store = std::make_shared<PictureFiles>("", std::move(files));
  dataset.objects = std::move(objects);
  return dataset;
}

}  // namespace

Splits OpenVoc(const std::string& path, const FileChoices& choices) {
  std::vector<std::string> paths = {path};
  paths.insert(paths.end(), choices.more_paths.begin(), choices.more_paths.end());
  const std::vector<std::string> years = YearFolders(paths);
  Splits splits;
  const std::string train_name = choices.train.empty() ? "trainval" : choices.train;
  const std::string test_name = choices.test.empty() ? "test" : choices.test;
  std::vector<VocImage> train =
      ReadVocImages(ListImages(years, train_name, &splits.note), choices.skip_broken);
  std::vector<VocImage> test =
      ReadVocImages(ListImages(years, test_name, &splits.note), choices.skip_broken);
  splits.class_names =
      choices.class_names.empty() ? NamesInAnnotations(train, test) : choices.class_names;
  if (splits.class_names.empty())
    throw DataError(path + ": no annotation has an object; expected some, or data.class_names");
  const LabelsByName labels = LabelsOf(splits.class_names);
  splits.train =
      MakeVocDataset(kTrainSplit, std::move(train), labels, choices.skip_broken, &splits.note);
  splits.test =
      MakeVocDataset(kTestSplit, std::move(test), labels, choices.skip_broken, &splits.note);
  return splits;
}

}  // namespace ada::data
