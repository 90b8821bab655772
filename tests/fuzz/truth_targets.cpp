// What says which files belong to a data set and what its classes are called, and the detections
// that are judged by such a set.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/detection/voc_files.h"
#include "data/readers.h"
#include "fuzz/scratch.h"
#include "fuzz/targets.h"
#include "study/commands.h"

namespace ada::fuzz {
namespace {

constexpr std::size_t kLookedUp = 4;  // names of a list whose files are looked for
constexpr std::size_t kMostFiles = 8;
constexpr const char* kAnnotation =
    "<annotation><object><name>cat</name><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>9</xmax>"
    "<ymax>7</ymax></bndbox></object></annotation>";

// A folder in VOC's layout with two images, `a` and `b`, both in the list of the split `test`.
class SmallVoc : public Scratch {
 public:
  SmallVoc() {
    for (const char* folder : {"ImageSets/Main", "JPEGImages", "Annotations"})
      std::filesystem::create_directories(*this / folder);
    Write("ImageSets/Main/test.txt", "a\nb\n");
    for (const std::string name : {"a", "b"}) {
      Write("JPEGImages/" + name + ".jpg", "");
      Write("Annotations/" + name + ".xml", kAnnotation);
    }
  }
};

void VocList(std::string_view input) {
  static const SmallVoc voc;
  voc.Write("ImageSets/Main/train.txt", input);
  Refusable([&] {
    std::string note;
    const auto images = data::ListImages(data::YearFolders(voc.path()), "train", &note);
    Demand(!images.empty(), "a list that names no image and is no error");
    for (std::size_t i = 0; i < images.size(); ++i) {
      Demand(!images[i].name.empty() && images[i].place.find("line ") != std::string::npos,
             "an image without name or place");
      if (i < kLookedUp) Refusable([&] { data::RequireFiles(images[i]); });
    }
  });
}

constexpr std::array kCamvidFolders = {"train", "trainannot", "test", "testannot"};

// Folders in CamVid's layout without a file.
class EmptyCamvid : public Scratch {
 public:
  EmptyCamvid() {
    for (const char* folder : kCamvidFolders) std::filesystem::create_directory(*this / folder);
  }
};

// The lines of the input as names of empty files: pictures and label images in turn.
void CamvidNames(std::string_view input) {
  static const EmptyCamvid camvid;
  std::set<std::string> files;
  std::istringstream lines{std::string(input)};
  for (std::string line; files.size() < kMostFiles && std::getline(lines, line);) {
    line.resize(std::min(line.size(), line.find_first_of(std::string_view("/\0", 2))));
    line.resize(std::min<std::size_t>(line.size(), NAME_MAX));
    if (line.empty() || line == "." || line == "..") continue;
    const std::string folder = kCamvidFolders[files.size() % kCamvidFolders.size()];
    files.insert(camvid.Write(folder + "/" + line, ""));
  }
  for (const bool skip : {false, true}) {
    Refusable([&] {
      const data::Splits splits = data::OpenCamvid(camvid.path(), {.skip_broken = skip});
      Demand(splits.train.images() > 0 && splits.test.images() > 0, "a split without images");
    });
  }
  for (const std::string& file : files) unlink(file.c_str());
}

void ClassList(std::string_view input) {
  static const Scratch cifar;
  cifar.Write("batches.meta.txt", input);
  Refusable([&] {
    const std::vector<std::string> names = data::ClassNames("cifar10", cifar.path());
    Demand(names.size() == 10, "not one name for each class");
  });
}

}  // namespace

// The first byte chooses what the names are of.
void Names(std::string_view input) {
  switch (TakeByte(&input) % 4) {
    case 0:
      return CamvidNames(input);
    case 1:
      return ClassList(input);
    default:
      return VocList(input);
  }
}

// The first byte chooses how the answer is written.
void Detections(std::string_view input) {
  static const SmallVoc voc;
  study::VocScoreOptions options;
  options.folders = {voc.path()};
  options.view = TakeByte(&input) % 2 == 0 ? study::View::kCsv : study::View::kTable;
  options.detections = voc.Write("detections.csv", input);
  Refusable([&] {
    std::ostringstream out, notes;
    study::ScoreVoc(options, out, notes);
    Demand(out.str().find("map") != std::string::npos, "an answer without the mean");
  });
}

}  // namespace ada::fuzz
