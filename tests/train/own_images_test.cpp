// Training on folders and arrays of one's own, by the program: the same bytes from either, for any
// number of workers and after a resume; what a broken file does; the sheet of images.
#include <algorithm>

#include "data/images/picture.h"
#include "io/tensor_files/safetensors.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

constexpr int kSide = 12, kClasses = 3;

constexpr char kOwnImages[] = R"(
seed: 3
device: {kind: cpu, threads: 2}
data:
  dataset: folder
  path: photos
  batch_size: 11
  evaluate_batch_size: 8
  normalize: {mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}
  augment:
    random_resized_crop: {size: 12}
    horizontal_flip: true
    color_jitter: {brightness: 0.4, hue: [-0.1, 0.1]}
    random_erasing: {p: 1, value: random}
model: {zoo: mlp, hidden: [16]}
optimizer: {kind: sgd, lr: 0.02, momentum: 0.9}
train: {epochs: 3}
log: {every: 2}
checkpoint: {every_steps: 4}
)";

// The same images as pictures in class folders and as a file of arrays, in the same order.
void WriteImages(const TempFolder& folder) {
  SafetensorsWriter writer;
  std::vector<std::uint8_t> pixels[2], labels[2];
  for (const int split : {0, 1}) {
    const int each = split == 0 ? 11 : 4;
    for (int i = 0; i < kClasses * each; ++i) {
      const int label = i / each;
      data::Picture picture{kSide, kSide, 3, {}};
      for (int p = 0; p < kSide * kSide * 3; ++p)
        picture.pixels.push_back(static_cast<std::uint8_t>(p * (label + 2) + i * 13));
      const std::string name = std::string(split == 0 ? "photos/train/" : "photos/val/") +
                               static_cast<char>('a' + label);
      std::filesystem::create_directories(folder / name);
      data::WritePng(folder / (name + "/" + std::to_string(100 + i) + ".png"), picture);
      pixels[split].insert(pixels[split].end(), picture.pixels.begin(), picture.pixels.end());
      labels[split].push_back(static_cast<std::uint8_t>(label));
    }
    const std::string prefix = split == 0 ? "train." : "test.";
    const auto count = static_cast<std::int64_t>(labels[split].size());
    writer.Add(prefix + "images", DType::kU8, {count, kSide, kSide, 3},
               std::as_bytes(std::span(pixels[split])));
    writer.Add(prefix + "labels", DType::kU8, {count}, std::as_bytes(std::span(labels[split])));
  }
  writer.SetMetadata({{"classes", "[\"a\", \"b\", \"c\"]"}});
  writer.WriteAtomically(folder / "photos.safetensors");
}

Outcome TrainOwn(const TempFolder& folder, const std::string& name,
                 const std::vector<std::string>& more) {
  Outcome run = Run(With(WriteConfig(folder, name, kOwnImages), more), folder.path());
  ADA_REQUIRE_EXIT(run, 0);
  return run;
}

void CheckSameRun(const TempFolder& folder, const std::string& a, const std::string& b) {
  for (const char* file : {"steps.csv", "underflow.csv", "evaluation.csv", "events.csv",
                           "checkpoints/step-00000009.safetensors"}) {
    CAPTURE(file);
    CHECK(ReadBytes(folder / (a + "/" + file)) == ReadBytes(folder / (b + "/" + file)));
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("own images: a folder and a file of arrays, any workers, and a resume give one run") {
    const TempFolder folder;
    WriteImages(folder);
    TrainOwn(folder, "one", {"--set", "data.workers=1"});
    TrainOwn(folder, "four", {"--set", "data.workers=4"});
    CheckSameRun(folder, "one", "four");
    TrainOwn(folder, "arrays",
             {"--set", "data.dataset=tensors", "--set", "data.path=photos.safetensors"});
    CheckSameRun(folder, "one", "arrays");
    TrainOwn(folder, "two", {"--set", "train.max_steps=4"});
    ADA_REQUIRE_EXIT(
        Run({"train", "--resume", "two", "--set", "train.max_steps=0", "--set", "data.workers=0"},
            folder.path()),
        0);
    CHECK(ReadBytes(folder / "one/checkpoints/step-00000009.safetensors") ==
          ReadBytes(folder / "two/checkpoints/step-00000009.safetensors"));
    CHECK(ReadBytes(folder / "one/config.yaml").find("classes: 3") != std::string::npos);
    const Outcome classes = Run({"evaluate", "four", "--per-class"}, folder.path());
    ADA_REQUIRE_EXIT(classes, 0);
    CHECK(classes.out.find("\ntest,1,b,4,") != std::string::npos);
  }

  TEST_CASE("own images: a broken file ends the run with its name, or is left out and named") {
    const TempFolder folder;
    WriteImages(folder);
    folder.Write("photos/train/b/115.png", "no picture");
    folder.Write("photos/val/a/100.png", "");
    const Outcome failed = Run(WriteConfig(folder, "fail", kOwnImages), folder.path());
    CHECK(failed.code == 3);
    CHECK(failed.err.find("photos/val/a/100.png: ") != std::string::npos);
    const Outcome run = TrainOwn(folder, "skip", {"--set", "data.on_broken=skip"});
    TrainOwn(folder, "skip5", {"--set", "data.on_broken=skip", "--set", "data.workers=5"});
    CheckSameRun(folder, "skip", "skip5");
    CHECK(run.out.find("2 images left out because they cannot be read") != std::string::npos);
    const Table events = ReadCsv(folder / "skip/events.csv");
    const auto of = [&](const std::string& name) {
      return std::count_if(events.begin(), events.end(), [&](const GoldenRow& row) {
        return row.at("event") == "broken_image" && row.at("value") == name;
      });
    };
    CHECK(of("photos/val/a/100.png") == 3);    // once an evaluation
    CHECK(of("photos/train/b/115.png") == 3);  // once an epoch
    for (const GoldenRow& row : ReadCsv(folder / "skip/evaluation.csv"))
      CHECK(Number(row, "images") == 11);
  }

  TEST_CASE("own images: a sheet of the first batch") {
    const TempFolder folder;
    WriteImages(folder);
    WriteConfig(folder, "own", kOwnImages);
    const Outcome made =
        Run({"datasets", "--preview", "sheet.png", "--config", "own.yaml"}, folder.path());
    ADA_REQUIRE_EXIT(made, 0);
    CHECK(made.out ==
          "sheet.png: the first 11 of 11 images of the first training batch, 12x12x3, as the "
          "network sees them\n");
    const data::Picture sheet = data::ReadPicture(folder / "sheet.png");
    CHECK(sheet.width == 8 * 104 + 8);
    CHECK(sheet.height > 2 * 96);
  }
}

}  // namespace ada::testing
