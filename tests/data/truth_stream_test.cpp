// Batches of images with label images or boxes: targets go with their images, whatever the threads
// do, and wherever a run begins.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "data/batch_maker.h"
#include "data/box_changes.h"
#include "data/images/resize.h"
#include "data/labels.h"
#include "data/loader.h"
#include "data/readers.h"
#include "data/reports/reports.h"
#include "data/segmentation/label_files.h"
#include "tiny_truth.h"
#include "vision/coder.h"
#include "vision/draw.h"

namespace ada::data {
namespace {

// 10 x 10 and 5 x 5 cells of an input of 40 x 40 pixels.
std::shared_ptr<const vision::BoxCoder> SmallCoder() {
  vision::DefaultBoxSpec spec;
  spec.input = 40;
  spec.grids = {10, 5};
  spec.steps = {4, 8};
  spec.sizes = {6, 14, 28};
  spec.aspects = {{2}, {2, 3}};
  return std::make_shared<vision::BoxCoder>(spec);
}

LoaderSpec PixelSpec(int workers) {
  LoaderSpec spec;
  spec.batch_size = 9;
  spec.shuffle = spec.horizontal_flip = true;
  spec.workers = workers;
  spec.prefetch = 1;
  spec.changes.resize.to = {16, 20};
  spec.changes.random_scale = Range{0.5, 2};
  return spec;
}

LoaderSpec BoxSpec(int workers) {
  LoaderSpec spec;
  spec.batch_size = 9;
  spec.shuffle = true;
  spec.mean = {0.5, 0.4, 0.3};
  spec.std = {0.2, 0.3, 0.4};
  spec.workers = workers;
  spec.prefetch = 1;
  spec.changes.resize.to = {40, 40};
  spec.changes.ssd = SsdChangesSpec{};
  spec.coder = SmallCoder();
  return spec;
}

bool SameTruth(const Batch& a, const Batch& b) {
  return a.rows == b.rows && a.labels == b.labels && a.images == b.images &&
         a.numbers == b.numbers && a.locations == b.locations && a.terms == b.terms;
}

// The batches of three epochs, by any number of workers and from any batch on.
void CheckStreams(const Dataset& dataset, const std::function<LoaderSpec(int)>& spec) {
  BatchMaker maker(dataset, spec(0));
  const std::int64_t count = 3 * maker.batches_per_epoch();
  std::vector<Batch> truth(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) maker.Make(i, &truth[static_cast<std::size_t>(i)]);
  CHECK_FALSE(SameTruth(truth[0], truth[static_cast<std::size_t>(maker.batches_per_epoch())]));
  for (const int workers : {0, 1, 3}) {
    CAPTURE(workers);
    Loader loader(dataset, spec(workers));
    for (const Batch& batch : truth) REQUIRE(SameTruth(loader.Next(), batch));
    loader.Seek(1, 1);
    for (std::size_t i = static_cast<std::size_t>(maker.batches_per_epoch()) + 1; i < truth.size();
         ++i)
      REQUIRE(SameTruth(loader.Next(), truth[i]));
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("truth stream: label images, whatever the threads do and wherever one begins") {
    const testing::TempFolder folder;
    PutCamvid(folder, 20, 24, 30);
    const Splits splits = OpenCamvid(folder.path(), {});
    CheckStreams(splits.train, PixelSpec);
    BatchMaker maker(splits.train, PixelSpec(0));
    Batch batch;
    maker.Make(0, &batch);
    CHECK(batch.labels.size() == 9 * 16 * 20);
    CHECK(batch.locations.empty());
    CHECK(batch.terms == std::count_if(batch.labels.begin(), batch.labels.end(),
                                       [](std::int32_t label) { return label >= 0; }));
    CHECK(*std::max_element(batch.labels.begin(), batch.labels.end()) == 10);
  }

  TEST_CASE("truth stream: boxes, whatever the threads do and wherever one begins") {
    const testing::TempFolder folder;
    PutVoc(folder.path(), 20);
    const Splits splits = OpenVoc(folder.path(), {});
    CheckStreams(splits.train, BoxSpec);
    BatchMaker maker(splits.train, BoxSpec(0));
    Batch batch;
    maker.Make(0, &batch);
    const int boxes = SmallCoder()->boxes();
    CHECK(batch.labels.size() == static_cast<std::size_t>(9 * boxes));
    CHECK(batch.locations.size() == batch.labels.size() * 4);
    CHECK(batch.terms == std::count_if(batch.labels.begin(), batch.labels.end(),
                                       [](std::int32_t label) { return label > 0; }));
    CHECK(batch.terms > 0);
  }

  // An image whose red value is 20 times the label of its pixel, through every change that moves.
  TEST_CASE("truth stream: a pixel's label goes with it") {
    const testing::TempFolder folder;
    for (const char* split : {"train", "test"}) {
      Picture picture{24, 32, 3, {}}, labels{24, 32, 1, {}};
      for (int y = 0; y < 24; ++y)
        for (int x = 0; x < 32; ++x) {
          const int label = 1 + (y / 8 + x / 8) % 9;
          labels.pixels.push_back(static_cast<std::uint8_t>(label));
          for (int c = 0; c < 3; ++c)
            picture.pixels.push_back(static_cast<std::uint8_t>(20 * label));
        }
      PutPicture(folder / (std::string(split) + "/a.png"), picture);
      PutPicture(folder / (std::string(split) + "annot/a.png"), labels);
    }
    Splits splits = OpenCamvid(folder.path(), {});
    splits.train.height = 24, splits.train.width = 32;  // of the first picture
    const auto spec_with = [](const std::function<void(LoaderSpec*)>& change) {
      LoaderSpec spec;
      spec.batch_size = 1;
      spec.workers = 0;
      change(&spec);
      return spec;
    };
    const std::map<std::string, LoaderSpec> specs = {
        {"as it is", spec_with([](LoaderSpec*) {})},
        {"mirrored", spec_with([](LoaderSpec* s) { s->horizontal_flip = true; })},
        {"padded and cropped", spec_with([](LoaderSpec* s) {
           s->pad = 5, s->random_crop = true, s->horizontal_flip = true;
         })},
        {"larger", spec_with([](LoaderSpec* s) {
           s->changes.resize.to = {48, 96};
         })},
        {"smaller", spec_with([](LoaderSpec* s) {
           s->changes.resize.to = {12, 16};
         })},
        {"scaled", spec_with([](LoaderSpec* s) {
           s->changes.random_scale = Range{0.5, 2}, s->horizontal_flip = true;
         })},
        {"random resized crop", spec_with([](LoaderSpec* s) {
           s->changes.random_resized_crop = RandomResizedCrop{{20, 28}, {}};
           s->horizontal_flip = true;
         })}};
    for (const auto& [name, spec] : specs) {
      CAPTURE(name);
      BatchMaker maker(splits.train, spec);
      std::int64_t inside = 0, same = 0;
      for (int epoch = 0; epoch < 20; ++epoch) {
        Batch batch;
        maker.Make(epoch, &batch);
        for (std::size_t i = 0; i < batch.labels.size(); ++i) {
          const float red = batch.images[3 * i] * 255;
          if (batch.labels[i] == kNoLabel) {
            CHECK(red == 0);  // beside the picture
            continue;
          }
          ++inside;
          same += std::lround(red) == 20 * batch.labels[i];
        }
      }
      // Where blocks meet, images are mixed and labels are not.
      const bool mixes = spec.changes.any();
      CHECK(inside > 1000);
      CHECK(static_cast<double>(same) >= (mixes ? 0.4 : 1.0) * static_cast<double>(inside));
      if (!mixes) CHECK(same == inside);
    }
  }

  // White boxes on black images: the boxes that are encoded lie around what is white.
  TEST_CASE("truth stream: a box goes with its image") {
    const testing::TempFolder folder;
    for (const char* split : {"trainval", "test"}) {
      PutVocImage(folder.path(), split, split, 60, 80, {{"cat", 31, 21, 51, 41}});
      Picture picture{60, 80, 3, std::vector<std::uint8_t>(60 * 80 * 3, 0)};
      for (int y = 20; y < 40; ++y)
        for (int x = 30; x < 50; ++x)
          std::fill_n(picture.pixels.begin() + (y * 80 + x) * 3, 3, std::uint8_t{255});
      PutPicture(folder / ("JPEGImages/" + std::string(split) + ".png"), picture);
    }
    const Splits splits = OpenVoc(folder.path(), {});
    LoaderSpec plain = BoxSpec(0), changed = plain;
    plain.mean = plain.std = changed.mean = changed.std = {};
    plain.batch_size = changed.batch_size = 1;
    plain.changes.ssd.reset();
    plain.horizontal_flip = true;
    changed.changes.ssd->distort.reset();
    changed.changes.ssd->expand->fill = {0, 0, 0};
    for (const LoaderSpec& spec : {plain, changed}) {
      BatchMaker maker(splits.train, spec);
      for (int epoch = 0; epoch < 60; ++epoch) {
        CAPTURE(epoch);
        Batch batch;
        maker.Make(epoch, &batch);
        std::vector<float> scores(batch.labels.size() * 2);
        for (std::size_t i = 0; i < batch.labels.size(); ++i)
          scores[2 * i + 1] = batch.labels[i] > 0 ? 20.0F : -20.0F;
        const auto found = spec.coder->Decode(batch.locations.data(), scores.data(), 2);
        if (found.empty()) continue;  // the crop left it out
        const vision::Box box = found.front().box;
        int y0 = 40, x0 = 40, y1 = 0, x1 = 0;
        for (int y = 0; y < 40; ++y)
          for (int x = 0; x < 40; ++x) {
            if (batch.images[static_cast<std::size_t>((y * 40 + x) * 3)] < 0.5F) continue;
            y0 = std::min(y0, y), x0 = std::min(x0, x);
            y1 = std::max(y1, y + 1), x1 = std::max(x1, x + 1);
          }
        CHECK(std::abs(box.y0 - static_cast<float>(y0)) <= 1.5F);
        CHECK(std::abs(box.x0 - static_cast<float>(x0)) <= 1.5F);
        CHECK(std::abs(box.y1 - static_cast<float>(y1)) <= 1.5F);
        CHECK(std::abs(box.x1 - static_cast<float>(x1)) <= 1.5F);
      }
    }
  }

  TEST_CASE("truth stream: a label image of another size, and a broken one that is left out") {
    const testing::TempFolder folder;
    PutCamvid(folder, 5, 24, 30);
    PutPicture(folder / "trainannot/102.png", TinyLabels(24, 31, 11, 11, 0));
    const Splits splits = OpenCamvid(folder.path(), {});
    LoaderSpec spec = PixelSpec(0);
    spec.batch_size = 5;
    Batch batch;
    CHECK(MessageOf(folder.path(), [&] { BatchMaker(splits.train, spec).Make(0, &batch); }) ==
          "DIR/trainannot/102.png: 31 x 24 pixels, and its picture DIR/train/102.png has 30 x 24 "
          "pixels; "
          "expected a label for each pixel");
    CHECK(MessageOf(folder.path(), [&] { RequireLabelSizes(splits.train, false); }) ==
          "DIR/trainannot/102.png: 31 x 24 pixels, and its picture DIR/train/102.png has 30 x 24 "
          "pixels; "
          "expected a label for each pixel");
    RequireLabelSizes(splits.train, true);
    RequireLabelSizes(splits.test, false);
    spec.on_broken = OnBroken::kLeaveOut;
    BatchMaker leaves(splits.train, spec);
    leaves.Make(0, &batch);
    CHECK(batch.rows == 4);
    CHECK(batch.labels.size() == 4 * 16 * 20);
    REQUIRE(batch.broken.size() == 1);
    CHECK(batch.broken[0].file == folder / "trainannot/102.png");
    PutText(folder / "train/104.png", "no PNG");
    PutText(folder / "trainannot/101.png", "no PNG");
    BatchMaker(splits.train, spec).Make(0, &batch);
    std::set<std::string> files;
    for (const BrokenImage& broken : batch.broken) files.insert(broken.file);
    CHECK(files == std::set<std::string>{folder / "train/104.png", folder / "trainannot/101.png",
                                         folder / "trainannot/102.png"});
    PutCamvid(folder, 5, 24, 30);
    PutPicture(folder / "trainannot/102.png", TinyLabels(24, 31, 11, 11, 0));
    spec.on_broken = OnBroken::kReplace;
    BatchMaker replaces(splits.train, spec);
    replaces.Make(0, &batch);
    CHECK(batch.rows == 5);
    CHECK(batch.broken.size() == 1);
    CHECK(std::count(batch.numbers.begin(), batch.numbers.end(), 2U) == 0);
  }

  TEST_CASE("truth stream: a picture that is replaced by one of another size is not its boxes'") {
    const testing::TempFolder folder;
    PutVoc(folder.path(), 3);
    PutText(folder / "Annotations/trainval102.xml", "<annotation></annotation>");  // says no size
    const Splits splits = OpenVoc(folder.path(), {});
    LoaderSpec ssd = BoxSpec(0), plain = ssd;
    ssd.batch_size = plain.batch_size = 3;
    plain.changes.ssd.reset();
    for (LoaderSpec spec : {ssd, plain}) {
      spec.on_broken = OnBroken::kFail;
      Batch batch;
      BatchMaker(splits.train, spec).Make(0, &batch);
      for (const char* name : {"trainval101", "trainval102"}) {
        const std::string picture = "JPEGImages/" + std::string(name) + ".png";
        PutPicture(folder / picture, TinyPicture(600, 800, 3, 1));
        CHECK(MessageOf(folder.path(), [&] { BatchMaker(splits.train, spec).Make(0, &batch); }) ==
              "DIR/" + picture +
                  ": has 800 x 600 pixels, and 80 x 60 when its boxes were read: it was replaced, "
                  "and they may be those of another picture; put the first one back, or start "
                  "again");
        LoaderSpec leaves = spec;
        leaves.on_broken = OnBroken::kLeaveOut;
        BatchMaker(splits.train, leaves).Make(0, &batch);
        CHECK(batch.rows == 2);
        REQUIRE(batch.broken.size() == 1);
        CHECK(batch.broken[0].file == folder / picture);
        PutPicture(folder / picture, TinyPicture(60, 80, 3, 2));  // others of that size are its
        BatchMaker(splits.train, spec).Make(0, &batch);
      }
    }
  }

  TEST_CASE("truth stream: parts of a set keep their truth") {
    const testing::TempFolder folder;
    PutVoc(folder.path(), 5);
    Splits splits = OpenVoc(folder.path(), {});
    const Dataset last = SplitLast(splits.train, 2);
    Limit(splits.train, 2);
    CHECK(last.task() == Task::kDetection);
    CHECK((*last.objects)[static_cast<std::size_t>(last.NumberInFiles(0))].name == "trainval103");
    CHECK((*splits.train.objects)[static_cast<std::size_t>(splits.train.NumberInFiles(1))].name ==
          "trainval101");
  }

  TEST_CASE("truth stream: what does not go together is a mistake of the configuration") {
    const testing::TempFolder folder;
    PutVoc(folder / "voc", 2);
    PutCamvid(folder, 2, 8, 8);
    const Splits voc = OpenVoc(folder / "voc", {}), camvid = OpenCamvid(folder.path(), {});
    LoaderSpec spec = BoxSpec(0);
    spec.changes.resize.to = {};
    CHECK_THROWS_AS(BatchMaker(voc.train, spec), ConfigError);
    spec.changes.resize.to = {48, 48};
    CHECK_THROWS_AS(BatchMaker(voc.train, spec), ConfigError);
    spec = BoxSpec(0);
    spec.random_crop = true;
    CHECK_THROWS_AS(BatchMaker(voc.train, spec), ConfigError);
    spec = PixelSpec(0);
    spec.mixing.mixup_alpha = 1;
    CHECK_THROWS_AS(BatchMaker(camvid.train, spec), ConfigError);
  }

  TEST_CASE("truth stream: draws of crops keep their constraints, and all of them are drawn") {
    const std::vector<vision::LabeledBox> boxes = {{{10, 20, 50, 60}, 0, false},
                                                   {{30, 40, 70, 90}, 1, false}};
    RandomStream stream(3, 4);
    StreamDraws draws(&stream);
    int whole = 0, tight = 0;
    for (int i = 0; i < 500; ++i) {
      const Box crop = DrawBoxCrop(BoxCropSpec{}, {100, 120}, boxes, &draws);
      if (crop == Box{0, 0, 100, 120}) {
        ++whole;
        continue;
      }
      CHECK(crop.top >= 0);
      CHECK(crop.left >= 0);
      CHECK(crop.top + crop.height <= 100);
      CHECK(crop.left + crop.width <= 120);
      CHECK(crop.height >= 100 * 0.3 / std::sqrt(2.0) - 1);
      const double aspect = crop.width * 100.0 / (crop.height * 120.0);
      CHECK(aspect > 0.45);
      CHECK(aspect < 2.2);
      tight += OverlapsWith(crop, boxes).least >= 0.1;
    }
    CHECK(whole > 50);   // one of at most seven
    CHECK(tight > 100);  // 0.1 and more are found often
    CHECK(whole + tight < 500);
    CHECK(DrawBoxCrop(BoxCropSpec{}, {100, 120}, {}, &draws) == Box{0, 0, 100, 120});
    CHECK(DrawBoxCrop(BoxCropSpec{}, {1, 1}, {{{0, 0, 1, 1}, 0, false}}, &draws) ==
          Box{0, 0, 1, 1});
    for (int i = 0; i < 200; ++i) {
      const Expansion expansion = DrawExpansion(4, {10, 15}, &draws);
      CHECK(expansion.canvas.height <= 40);
      CHECK(expansion.top + 10 <= expansion.canvas.height);
      CHECK(expansion.left + 15 <= expansion.canvas.width);
    }
  }

  TEST_CASE("truth stream: a sheet shows labels as colours and boxes with their classes") {
    const testing::TempFolder folder;
    PutCamvid(folder, 1, 96, 96);
    Splits splits = OpenCamvid(folder.path(), {});
    splits.train.height = splits.train.width = 96;
    LoaderSpec spec;
    spec.batch_size = 1;
    spec.workers = 0;
    Batch batch;
    BatchMaker maker(splits.train, spec);
    maker.Make(0, &batch);
    const Picture sheet = DrawSheet(batch, maker.shape(), spec, splits.class_names);
    const vision::Rgb color = vision::LabelColor(batch.labels[0]);
    const std::size_t at = static_cast<std::size_t>(8 * sheet.width + 8) * 3;
    CHECK(std::abs(sheet.pixels[at] - (color.r + batch.images[0] * 255) / 2) <= 2);
    PutVoc(folder / "voc", 1);
    const Splits voc = OpenVoc(folder / "voc", {});
    LoaderSpec boxes = BoxSpec(0);
    boxes.batch_size = 1;
    boxes.changes.ssd.reset();
    BatchMaker of_boxes(voc.train, boxes);
    of_boxes.Make(0, &batch);
    const Picture drawn = DrawSheet(batch, of_boxes.shape(), boxes, voc.class_names);
    batch.labels.assign(batch.labels.size(), 0);
    CHECK(drawn.pixels != DrawSheet(batch, of_boxes.shape(), boxes, voc.class_names).pixels);
  }

  TEST_CASE("truth stream: nearest labels are PIL's") {
    // PIL.Image.fromarray(numpy.arange(7)).resize((3, 1), NEAREST), then 7 to 10.
    const auto row = [](int from, int to) {
      std::vector<int> places;
      for (int i = 0; i < to; ++i) places.push_back(NearestPlace(i, from, to));
      return places;
    };
    CHECK(row(7, 3) == std::vector<int>{1, 3, 5});
    CHECK(row(7, 10) == std::vector<int>{0, 1, 1, 2, 3, 3, 4, 5, 5, 6});
    CHECK(row(4, 2) == std::vector<int>{1, 3});
  }
}

}  // namespace ada::data
