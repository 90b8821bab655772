// What all data sets share: folders, names, limits, lists; and the synthetic one.
#include "data/dataset.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tiny_files.h"

namespace ada::data {
namespace {

Dataset Numbered(int images) {
  Dataset dataset = {"numbered", 1, 2, 1, 256};
  for (int i = 0; i < images; ++i) {
    dataset.labels.push_back(static_cast<Label>(i));
    dataset.pixels.insert(dataset.pixels.end(), 2, static_cast<std::uint8_t>(i + 100));
  }
  return dataset;
}

// The share of `test` whose nearest class mean over `train` is its own class.
double NearestMeanAccuracy(const Splits& splits) {
  const auto size = splits.train.pixels.size() / splits.train.labels.size();
  std::vector<double> mean(size * static_cast<std::size_t>(splits.train.classes));
  std::vector<double> count(static_cast<std::size_t>(splits.train.classes));
  for (std::size_t i = 0; i < splits.train.labels.size(); ++i) {
    const std::size_t label = splits.train.labels[i];
    ++count[label];
    for (std::size_t j = 0; j < size; ++j) {
      mean[label * size + j] += splits.train.pixels[i * size + j];
    }
  }
  int right = 0;
  for (std::size_t i = 0; i < splits.test.labels.size(); ++i) {
    std::size_t best = 0;
    double least = INFINITY;
    for (std::size_t label = 0; label < count.size(); ++label) {
      double distance = 0;
      for (std::size_t j = 0; j < size; ++j) {
        distance +=
            std::pow(splits.test.pixels[i * size + j] - mean[label * size + j] / count[label], 2);
      }
      if (distance < least) {
        least = distance;
        best = label;
      }
    }
    right += best == splits.test.labels[i];
  }
  return right / static_cast<double>(splits.test.labels.size());
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("data: folders and names that are wrong") {
    const testing::TempFolder folder;
    WriteFile(folder / "file", {});
    std::filesystem::create_directory(folder / "empty");
    const auto message = [&folder](const std::string& name, const std::string& path) {
      std::string read = MessageOf(folder.path(), [&] { Read(name, path); });
      CHECK(MessageOf(folder.path(), [&] { Inspect(name, path); }) == read);
      return read;
    };
    CHECK(message("cifar10", folder / "none") ==
          "DIR/none: no such folder; expected the files of CIFAR-10, binary version; fetch it: "
          "ada-train fetch cifar10 --to DIR/none");
    CHECK(message("mnist", folder / "file") ==
          "DIR/file: not a folder; expected a folder with the files of MNIST, IDX files, plain or "
          ".gz; fetch it: ada-train fetch mnist --to DIR/file");
    CHECK(message("cifar100", folder / "empty") ==
          "DIR/empty: none of the files of CIFAR-100, binary version, fine labels here; expected "
          "train.bin in DIR/empty or DIR/empty/cifar-100-binary; fetch it: "
          "ada-train fetch cifar100 --to DIR/empty");
    CHECK(message("cifar-10", folder / "none") ==
          "data set 'cifar-10': expected one of cifar10, cifar100, mnist, fashion_mnist; did you "
          "mean 'cifar10'?");
  }

  TEST_CASE("data: Limit keeps the first, SplitLast takes the last") {
    for (const int limit : {0, 1, 4, 5, 9}) {
      Dataset dataset = Numbered(5);
      Limit(dataset, limit);
      const int kept = limit == 0 || limit > 5 ? 5 : limit;
      CHECK(dataset.labels == Numbered(kept).labels);
      CHECK(dataset.pixels == Numbered(kept).pixels);
    }
    Dataset dataset = Numbered(5);
    const Dataset last = SplitLast(dataset, 2);
    CHECK(dataset.labels == std::vector<Label>{0, 1, 2});
    CHECK(dataset.pixels == PixelBytes{100, 100, 101, 101, 102, 102});
    CHECK(last.labels == std::vector<Label>{3, 4});
    CHECK(last.pixels == PixelBytes{103, 103, 104, 104});
    CHECK(last.width == 2);
    CHECK(last.classes == 256);
    CHECK(SplitLast(dataset, 0).images() == 0);
    CHECK(dataset.images() == 3);
    CHECK(MessageOf<ConfigError>("no folder", [&] { SplitLast(dataset, 3); }) ==
          "data.validation: holds back 3 of 3 training images; expected fewer, so that some are "
          "left to train on");
  }

  TEST_CASE("data: the list has a line for each name") {
    const std::vector<std::string> lines = ListDatasets();
    const std::vector<std::string> names = {"cifar10 ", "cifar100 ", "mnist ",  "fashion_mnist ",
                                            "folder ",  "camvid ",   "voc ",    "tensors ",
                                            "text ",    "tokens ",   "jargon ", "synthetic "};
    REQUIRE(lines.size() == names.size());
    for (std::size_t i = 0; i < names.size(); ++i) CHECK(lines[i].starts_with(names[i]));
    CHECK(lines[0].ends_with(
        "normalize: standard is mean [0.4914, 0.4822, 0.4465], std [0.2023, 0.1994, 0.2010]"));
    CHECK(lines[3].ends_with("normalize: standard is mean [0.2860], std [0.3530]"));
  }

  TEST_CASE("synthetic: shapes, balance, determinism") {
    for (const SyntheticSpec& spec :
         {SyntheticSpec{}, SyntheticSpec{28, 28, 1, 10, 64, 16}, SyntheticSpec{1, 1, 1, 2, 3, 1},
          SyntheticSpec{3, 5, 7, 256, 300, 2}}) {
      const Splits splits = MakeSynthetic(spec, 5);
      const auto size = static_cast<std::size_t>(spec.height) *
                        static_cast<std::size_t>(spec.width) *
                        static_cast<std::size_t>(spec.channels);
      CHECK(splits.train.images() == spec.train);
      CHECK(splits.test.images() == spec.test);
      CHECK(splits.train.pixels.size() == static_cast<std::size_t>(spec.train) * size);
      CHECK(splits.test.pixels.size() == static_cast<std::size_t>(spec.test) * size);
      REQUIRE(splits.mean.size() == static_cast<std::size_t>(spec.channels));
      for (std::size_t i = 0; i < splits.train.labels.size(); ++i) {
        REQUIRE(splits.train.labels[i] == i % static_cast<std::size_t>(spec.classes));
      }
      const Splits again = MakeSynthetic(spec, 5);
      CHECK(again.train.pixels == splits.train.pixels);
      CHECK(again.test.pixels == splits.test.pixels);
      CHECK(again.mean == splits.mean);
    }
    CHECK(MakeSynthetic({}, 5).train.pixels != MakeSynthetic({}, 6).train.pixels);
  }

  TEST_CASE("synthetic: the first images do not depend on how many there are") {
    const Splits few = MakeSynthetic({8, 8, 3, 10, 20, 10}, 1);
    Splits many = MakeSynthetic({8, 8, 3, 10, 40, 30}, 1);
    Limit(many.train, 20);
    Limit(many.test, 10);
    CHECK(many.train.pixels == few.train.pixels);
    CHECK(many.test.pixels == few.test.pixels);
    CHECK(few.test.pixels != PixelBytes(few.train.pixels.begin(), few.train.pixels.begin() + 1920));
  }

  TEST_CASE("synthetic: measured mean and std are those of the pixels") {
    const Splits splits = MakeSynthetic({16, 16, 3, 10, 500, 10}, 3);
    for (std::size_t c = 0; c < 3; ++c) {
      double sum = 0, squares = 0, count = 0;
      for (std::size_t i = c; i < splits.train.pixels.size(); i += 3) {
        const double value = splits.train.pixels[i] / 255.0;
        sum += value;
        squares += value * value;
        ++count;
      }
      CHECK(splits.mean[c] == doctest::Approx(sum / count).epsilon(1e-9));
      CHECK(splits.std[c] ==
            doctest::Approx(std::sqrt(squares / count - std::pow(sum / count, 2))).epsilon(1e-9));
      CHECK(splits.mean[c] > 0.3);
      CHECK(splits.mean[c] < 0.7);
      CHECK(splits.std[c] > 0.15);
      CHECK(splits.std[c] < 0.35);
    }
  }

  TEST_CASE("synthetic: classes can be told apart") {
    CHECK(NearestMeanAccuracy(MakeSynthetic({16, 16, 3, 10, 1000, 500}, 1)) > 0.99);
    CHECK(NearestMeanAccuracy(MakeSynthetic({28, 28, 1, 10, 1000, 500}, 2)) > 0.99);
  }

  TEST_CASE("synthetic: sizes that are refused") {
    struct Row {
      SyntheticSpec spec;
      const char* message;
    };
    for (const Row& row : {
             Row{{0, 1, 1, 2, 1, 1}, "data.synthetic.height: 0; expected 1 to 4096"},
             Row{{1, 9999, 1, 2, 1, 1}, "data.synthetic.width: 9999; expected 1 to 4096"},
             Row{{1, 1, -1, 2, 1, 1}, "data.synthetic.channels: -1; expected 1 to 256"},
             Row{{1, 1, 1, 257, 1, 1}, "data.synthetic.classes: 257; expected 2 to 256"},
             Row{{1, 1, 1, 2, 0, 1}, "data.synthetic.train: 0; expected 1 to 2147483647"},
             Row{{1, 1, 1, 2, 1, -5}, "data.synthetic.test: -5; expected 1 to 2147483647"},
             Row{{1024, 1024, 4, 2, 100000, 1},
                 "data.synthetic: images of 390.6 GiB together; expected at most 64 GiB: take "
                 "fewer or smaller images"},
         }) {
      CHECK(MessageOf<ConfigError>("no folder", [&] { MakeSynthetic(row.spec, 1); }) ==
            row.message);
    }
  }
}

}  // namespace ada::data
