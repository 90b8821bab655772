// This file has the rows of the catalog and finds the files of published sets.
#include "data/catalog.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "error.h"
#include "io/data_files.h"
#include "io/text.h"

namespace ada::data {

// The readers, each in a file of its own.
extern const FileLayout kCifarFiles, kIdxFiles;

namespace {

namespace fs = std::filesystem;

// Means and standard deviations are those that most published results use. CIFAR-10's deviations
// are the mean over images of each image's own deviation (0.2023), not that of all pixels (0.2470).
std::vector<DatasetFacts> MakeCatalog() {
  const FileNames idx_train = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
  const FileNames idx_test = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
  return {
      {.name = "cifar10",
       .title = "CIFAR-10, binary version",
       .source = "https://www.cs.toronto.edu/~kriz/cifar.html",
       .layout = &kCifarFiles,
       .height = 32,
       .width = 32,
       .channels = 3,
       .classes = 10,
       .train = 50000,
       .test = 10000,
       .train_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                       "data_batch_4.bin", "data_batch_5.bin"},
       .test_files = {"test_batch.bin"},
       .subfolders = {"cifar-10-batches-bin"},
       .folder = "cifar-10",
       .mean = {0.4914, 0.4822, 0.4465},
       .std = {0.2023, 0.1994, 0.2010},
       .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse",
                       "ship", "truck"}},
      {.name = "cifar100",
       .title = "CIFAR-100, binary version, fine labels",
       .source = "https://www.cs.toronto.edu/~kriz/cifar.html",
       .layout = &kCifarFiles,
       .height = 32,
       .width = 32,
       .channels = 3,
       .classes = 100,
       .coarse_classes = 20,
       .train = 50000,
       .test = 10000,
       .train_files = {"train.bin"},
       .test_files = {"test.bin"},
       .subfolders = {"cifar-100-binary"},
       .folder = "cifar-100",
       .mean = {0.5071, 0.4865, 0.4409},
       .std = {0.2673, 0.2564, 0.2762},
       .names_file = "fine_label_names.txt"},
      {.name = "mnist",
       .title = "MNIST, IDX files, plain or .gz",
       .source = "https://yann.lecun.com/exdb/mnist/",
       .layout = &kIdxFiles,
       .height = 28,
       .width = 28,
       .channels = 1,
       .classes = 10,
       .train = 60000,
       .test = 10000,
       .train_files = idx_train,
       .test_files = idx_test,
       .subfolders = {"MNIST/raw", "raw"},
       .folder = "mnist",
       .mean = {0.1307},
       .std = {0.3081},
       .class_names = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
      {.name = "fashion_mnist",
       .title = "Fashion-MNIST, IDX files, plain or .gz",
       .source = "https://github.com/zalandoresearch/fashion-mnist",
       .layout = &kIdxFiles,
       .height = 28,
       .width = 28,
       .channels = 1,
       .classes = 10,
       .train = 60000,
       .test = 10000,
       .train_files = idx_train,
       .test_files = idx_test,
       .subfolders = {"FashionMNIST/raw", "raw"},
       .folder = "fashion-mnist",
       .system_folder = "/usr/share/datasets/fashion-mnist",
       .mean = {0.2860},
       .std = {0.3530},
       .class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt",
                       "Sneaker", "Bag", "Ankle boot"}},
      {.name = "folder",
       .title = "pictures of your own (JPEG, PNG): PATH/train/CLASS/*, PATH/val/CLASS/* or test",
       .origin = Origin::kFolder,
       .channels = 3,
       .mean = {0.485, 0.456, 0.406},  // ImageNet's, as torchvision's models take them
       .std = {0.229, 0.224, 0.225}},
      {.name = "camvid",
       .title = "pictures with label images: PATH/train/*, PATH/trainannot/*.png, PATH/test/*, ...",
       .origin = Origin::kLabelImages,
       .channels = 3,
       .folder = "camvid",
       .mean = {0.485, 0.456, 0.406},
       .std = {0.229, 0.224, 0.225}},
      {.name = "voc",
       .title = "pictures with boxes: PATH/JPEGImages, PATH/Annotations/*.xml, PATH/ImageSets/Main",
       .origin = Origin::kBoxes,
       .channels = 3,
       .mean = {0.485, 0.456, 0.406},
       .std = {0.229, 0.224, 0.225}},
      {.name = "tensors",
       .title = "arrays of your own (.safetensors, .npz): train.images, train.labels, test.*; or "
                "train.tokens (task: language)",
       .origin = Origin::kTensors},
      {.name = "text",
       .title = "texts of your own, whose bytes are tokens (task: language)",
       .origin = Origin::kText},
      {.name = "tokens",
       .title = "files of uint16 or uint32 as nanoGPT and llm.c write them (task: language)",
       .origin = Origin::kTokens},
      {.name = "jargon",
       .title = "the Jargon File 4.4.7, 1,418,350 bytes of English (task: language)",
       .source = "Debian's package dict-jargon",
       .origin = Origin::kText,
       .train_files = {"jargon.txt"},
       .folder = "jargon"},
      {.name = "synthetic",
       .title = "any shape, classes and counts; made from the seed, no files, learnable",
       .origin = Origin::kSeed},
      {.name = "external",
       .title = "of a run that ada_train.torch recorded; it can be read, not trained on",
       .origin = Origin::kOtherProgram},
  };
}

// One file is enough: where others are missing, the reader names the first of them, which helps
// more than that the folder is not the set's.
bool HoldsAnyFile(const DatasetFacts& facts, const fs::path& folder) {
  for (const FileNames* names : {&facts.train_files, &facts.test_files}) {
    for (const std::string_view name : *names) {
      if (IsThere((folder / name).string())) return true;
      if (facts.layout->packs && IsThere((folder / (std::string(name) + ".gz")).string()))
        return true;
    }
  }
  return false;
}

}  // namespace

const std::vector<DatasetFacts>& Catalog() {
  static const std::vector<DatasetFacts> catalog = MakeCatalog();
  return catalog;
}

const DatasetFacts& FactsOf(std::string_view name) {
  std::string known;
  std::vector<std::string> names;
  for (const DatasetFacts& facts : Catalog()) {
    if (facts.name == name) return facts;
    // The message offers the sets whose files have known names, which `fetch` can get.
    if (!facts.layout) continue;
    names.emplace_back(facts.name);
    known += (known.empty() ? "" : ", ") + names.back();
  }
  const std::string nearest = NearestName(name, names);
  throw DataError("data set '" + std::string(name) + "': expected one of " + known +
                  (nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
}

std::string SplitFiles::PathOf(std::string_view name) const {
  // Where neither file is there this is the plain name, which the reader's message then has.
  std::string plain = (fs::path(folder) / name).string();
  if (!facts.layout->packs || IsThere(plain)) return plain;
  return IsThere(plain + ".gz") ? plain + ".gz" : plain;
}

std::string NormalizationText(const DatasetFacts& facts) {
  const int decimals = facts.decodes() ? 3 : 4;  // as they were published
  const auto list = [decimals](const std::vector<double>& values) {
    std::string text;
    for (const double value : values) {
      std::array<char, 16> digits;
      std::snprintf(digits.data(), digits.size(), "%.*f", decimals, value);
      text += (text.empty() ? "" : ", ") + std::string(digits.data());
    }
    return "[" + text + "]";
  };
  return "mean " + list(facts.mean) + ", std " + list(facts.std);
}

std::string DataRoot() {
  const char* root = std::getenv("ADA_DATA");
  return root && *root ? root : "data";
}

std::string DefaultPath(const DatasetFacts& facts) {
  if (facts.folder.empty()) return "";
  const std::string fetched = (fs::path(DataRoot()) / facts.folder).string();
  const std::string system(facts.system_folder);
  return !system.empty() && !IsThere(fetched) && IsThere(system) ? system : fetched;
}

std::string FetchAdvice(const DatasetFacts& facts, const std::string& folder) {
  return "fetch it: ada-train fetch " + std::string(facts.name) + " --to " + folder;
}

std::string FindFolder(const DatasetFacts& facts, const std::string& folder) {
  const std::string advice = "; " + FetchAdvice(facts, folder);
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  RefuseMachineError(folder, error);
  if (!fs::exists(status)) {
    throw DataError(folder + ": no such folder; expected the files of " + std::string(facts.title) +
                    advice);
  }
  if (!fs::is_directory(status)) {
    throw DataError(folder + ": not a folder; expected a folder with the files of " +
                    std::string(facts.title) + advice);
  }
  if (HoldsAnyFile(facts, folder)) return folder;
  std::string looked;
  for (const std::string_view below : facts.subfolders) {
    const fs::path inside = fs::path(folder) / below;
    if (HoldsAnyFile(facts, inside)) return inside.string();
    looked += " or " + inside.string();
  }
  throw DataError(folder + ": none of the files of " + std::string(facts.title) +
                  " here; expected " + std::string(facts.train_files.front()) + " in " + folder +
                  looked + advice);
}

}  // namespace ada::data
