// The data set camvid: pictures and label images of the same name, their errors, weights of
// classes.
#include <doctest/doctest.h>

#include <cmath>

#include "data/images/picture.h"
#include "data/readers.h"
#include "data/segmentation/label_files.h"
#include "golden_table.h"
#include "golden_vision.h"
#include "recorded_pictures.h"
#include "tiny_truth.h"

namespace ada::data {
namespace {

// A set whose label images are numbers in memory.
class LabelsInMemory final : public LabelImages {
 public:
  explicit LabelsInMemory(std::vector<Picture> labels) : labels_(std::move(labels)) {}
  std::string NameOf(std::int64_t image) const override { return std::to_string(image); }
  Picture Read(std::int64_t image) const override {
    return labels_[static_cast<std::size_t>(image)];
  }
  PictureSize SizeOf(std::int64_t image) const override { return Read(image).size(); }
  std::uint64_t DecodingBytesOf(std::int64_t) const override { return 0; }
  int ignored() const override { return -1; }

 private:
  std::vector<Picture> labels_;
};

FileChoices Named(std::vector<std::string> names, std::optional<int> ignored = {}) {
  FileChoices choices;
  choices.class_names = std::move(names);
  choices.ignored_label = ignored;
  return choices;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("camvid: pictures with their label images, CamVid's classes, 11 ignored") {
    const testing::TempFolder folder;
    PutCamvid(folder, 3, 20, 24);
    const Splits splits = OpenCamvid(folder.path() + "/", {});
    CHECK(splits.train.images() == 3);
    CHECK(splits.test.images() == 3);
    CHECK(splits.train.classes == 11);
    CHECK(splits.class_names.front() == "sky");
    CHECK(splits.class_names.back() == "bicyclist");
    CHECK(splits.note.empty());
    CHECK(splits.train.task() == Task::kSegmentation);
    CHECK(splits.train.store->TitleOf(1) == "101");
    const Picture labels = splits.train.label_images->Read(2),
                  stored = TinyLabels(20, 24, 11, 11, 2);
    REQUIRE(labels.size() == stored.size());
    for (std::size_t i = 0; i < labels.pixels.size(); ++i)
      REQUIRE(labels.pixels[i] == (stored.pixels[i] == 11 ? kIgnoredPixel : stored.pixels[i]));
  }

  TEST_CASE("camvid: classes of one's own, other splits, another ignored label or none") {
    const testing::TempFolder folder;
    PutCamvid(folder, 2, 12, 12, 3, 255);
    CHECK(OpenCamvid(folder.path(), Named({"a", "b", "c"})).train.label_images->Read(0).pixels ==
          TinyLabels(12, 12, 3, 255, 0).pixels);
    PutCamvid(folder, 2, 12, 12, 3, 0);
    const Splits zero = OpenCamvid(folder.path(), Named({"a", "b", "c"}, 0));
    const Picture read = zero.train.label_images->Read(0);
    CHECK(std::count(read.pixels.begin(), read.pixels.end(), 0) == 0);
    CHECK(std::count(read.pixels.begin(), read.pixels.end(), kIgnoredPixel) > 0);
    FileChoices choices = Named({"a", "b", "c"}, -1);
    choices.train = "test", choices.test = "train";
    CHECK(OpenCamvid(folder.path(), choices).train.store->NameOf(0) == folder / "test/100.png");
    CHECK(OpenCamvid(folder.path(), choices).train.label_images->Read(0).pixels ==
          TinyLabels(12, 12, 3, 0, 0).pixels);
  }

  // PIL's values of these pictures, each times its place mod 251, sum up to these numbers.
  TEST_CASE("camvid: label images are indices of a palette or grey values, and nothing else") {
    const std::map<std::string, std::int64_t> sums = {{"palette.png", 1517620},
                                                      {"palette_transparent.png", 439837},
                                                      {"one_bit.png", 121541},
                                                      {"grey.png", 16862085}};
    for (const auto& [name, sum] : sums) {
      CAPTURE(name);
      const Picture labels = ReadLabelPng(RecordedPath("files/" + name));
      CHECK(labels.channels == 1);
      std::int64_t ours = 0;
      for (std::size_t i = 0; i < labels.pixels.size(); ++i)
        ours += labels.pixels[i] * static_cast<std::int64_t>(i % 251);
      CHECK(ours == sum);
    }
    for (const char* name : {"grey16.png", "grey_alpha.png", "rgb.png", "rgba.png", "grey.jpg"})
      CHECK_THROWS_AS(ReadLabelPng(RecordedPath(std::string("files/") + name)), DataError);
  }

  TEST_CASE("camvid: what is wrong with the files is named") {
    const testing::TempFolder folder;
    PutCamvid(folder, 3, 8, 8);
    const auto message = [&](const FileChoices& choices = {}) {
      return MessageOf(folder.path(), [&] {
        const Splits splits = OpenCamvid(folder.path(), choices);
        for (std::int64_t i = 0; i < splits.train.images(); ++i) splits.train.label_images->Read(i);
      });
    };
    PutPicture(folder / "trainannot/101.png", TinyPicture(8, 8, 1, 3));
    CHECK(
        message() ==
        "DIR/trainannot/101.png: row 0, column 0: label 93 is none of the 11 classes (0 to 10) nor "
        "the ignored label 11; name all classes in data.class_names, say data.ignored_label, or "
        "what "
        "each value means in data.label_values");
    PutPicture(folder / "trainannot/101.png", TinyPicture(8, 8, 3, 3));
    CHECK(message() ==
          "DIR/trainannot/101.png: PNG, 8-bit RGB: no label image; expected 8-bit grey or palette "
          "PNG, whose values are the numbers of the classes; of colors, data.label_values says the "
          "classes");
    std::filesystem::remove(folder / "trainannot/101.png");
    CHECK(message() ==
          "DIR/train: 1 picture without a label image in DIR/trainannot: 101.png; expected "
          "PATH/SPLIT/NAME.png (or .jpg, .jpeg, .webp) and PATH/SPLITannot/NAME.png; or leave them "
          "out with "
          "data.on_broken: skip");
    FileChoices skip;
    skip.skip_broken = true;
    CHECK(OpenCamvid(folder.path(), skip).train.images() == 2);
    const std::vector<BrokenImage> left_out = OpenCamvid(folder.path(), skip).train.left_out;
    REQUIRE(left_out.size() == 1);
    CHECK(left_out[0].file == folder / "trainannot/101.png");
    CHECK(LeftOutText("train", left_out[0]) ==
          "split train: " + left_out[0].file + ": no such file; expected the label image of " +
              (folder / "train/101.png") + " (left out: data.on_broken)");
    PutPicture(folder / "trainannot/101.png", TinyLabels(8, 8, 11, 11, 0));
    PutPicture(folder / "trainannot/999.png", TinyLabels(8, 8, 11, 11, 0));
    CHECK(OpenCamvid(folder.path(), {}).note.find("1 label image without a picture") !=
          std::string::npos);
    PutPicture(folder / "train/101.jpg", TinyPicture(8, 8, 3, 3));
    CHECK(message() ==
          "DIR/train: 101.jpg and 101.png have the same name but for the ending, and one label "
          "image; expected one of them");
    FileChoices other;
    other.test = "val";
    std::filesystem::remove(folder / "train/101.jpg");
    CHECK(message(other).find("DIR/val: no such folder") == 0);
    CHECK_THROWS_AS(OpenCamvid(folder.path(), Named(std::vector<std::string>(256, "x"))),
                    ConfigError);
  }

  TEST_CASE("class weights: the recorded ones, and a class that is never seen") {
    for (const std::string& folder : testing::VisionFolders("ops")) {
      CAPTURE(folder);
      const SafetensorsFile file = SafetensorsFile::Open(folder + "/class_weight.safetensors");
      std::map<std::string, std::vector<double>> recorded;
      for (const auto& row : testing::ReadTable(folder + "/class_weight.csv").rows)
        recorded[row.at("case")].push_back(std::strtod(row.at("weight").c_str(), nullptr));
      for (const auto& [name, weights] : recorded) {
        CAPTURE(name);
        std::vector<Picture> labels;
        for (int i = 0;; ++i) {
          const TensorEntry* entry = file.Find(name + ".label." + std::to_string(i));
          if (entry == nullptr) break;
          const std::vector<std::byte> bytes = file.Bytes(entry->name);
          Picture& picture = labels.emplace_back(
              Picture{static_cast<int>(entry->shape[0]), static_cast<int>(entry->shape[1]), 1, {}});
          for (std::size_t at = 0; at < bytes.size(); at += 4) {
            std::int32_t label = 0;
            std::memcpy(&label, bytes.data() + at, 4);
            picture.pixels.push_back(label < 0 ? kIgnoredPixel : static_cast<std::uint8_t>(label));
          }
        }
        Dataset dataset;
        dataset.classes = static_cast<int>(weights.size());
        dataset.labels.resize(labels.size());
        dataset.label_images = std::make_shared<LabelsInMemory>(std::move(labels));
        const std::vector<double> ours = MedianFrequencyWeights(dataset, UnseenClass::kAllNan);
        REQUIRE(ours.size() == weights.size());
        const bool unseen = std::isnan(weights[0]);
        for (std::size_t k = 0; k < ours.size(); ++k) {
          CHECK(std::isnan(ours[k]) == unseen);
          if (!unseen) CHECK(ours[k] == doctest::Approx(weights[k]).epsilon(1e-15));
        }
        std::vector<int> never;
        const std::vector<double> mended =
            MedianFrequencyWeights(dataset, UnseenClass::kWeightOne, &never);
        CHECK(never.empty() == !unseen);
        for (std::size_t k = 0; k < mended.size(); ++k) CHECK(std::isfinite(mended[k]));
        for (const int k : never) CHECK(mended[static_cast<std::size_t>(k)] == 1);
        if (!unseen) CHECK(mended == ours);
      }
    }
  }

  TEST_CASE("class weights: images that training cannot use are an error, or left out and named") {
    const testing::TempFolder folder;
    PutCamvid(folder, 6, 8, 8);
    const auto weights = [&](std::vector<BrokenImage>* left_out) {
      return MedianFrequencyWeights(OpenCamvid(folder.path(), {}).train, UnseenClass::kWeightOne,
                                    nullptr, left_out);
    };
    PutText(folder / "trainannot/101.png", "no PNG");
    PutPicture(folder / "trainannot/102.png", TinyLabels(8, 9, 11, 11, 0));
    PutText(folder / "train/103.png", "no PNG");
    CHECK(MessageOf(folder.path(), [&] {
            weights(nullptr);
          }).starts_with("DIR/trainannot/101.png: is text"));
    std::vector<BrokenImage> left_out;
    const std::vector<double> skipping = weights(&left_out);
    REQUIRE(left_out.size() == 3);
    CHECK(left_out[0].file == folder / "trainannot/101.png");
    CHECK(left_out[0].image == 1);
    CHECK(left_out[1].file == folder / "trainannot/102.png");
    CHECK(left_out[2].file == folder / "train/103.png");
    for (const char* name : {"101.png", "102.png", "103.png"})
      for (const char* part : {"train/", "trainannot/"})
        std::filesystem::remove(folder / (part + std::string(name)));
    CHECK(weights(nullptr) == skipping);
  }

  TEST_CASE("class weights: the median is that of the classes that are seen") {
    // Frequencies 0.5, -, 0.1 and 0.2.
    CHECK(MedianFrequencyWeights({50, 0, 10, 20}, {100, 0, 100, 100}, UnseenClass::kWeightOne) ==
          std::vector<double>{0.2 / 0.5, 1, 0.2 / 0.1, 1});
    CHECK(MedianFrequencyWeights({0, 0}, {0, 0}, UnseenClass::kWeightOne) ==
          std::vector<double>{1, 1});
  }
}

}  // namespace ada::data
