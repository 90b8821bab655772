// SSD's random changes against what ChainerCV and OpenCV made with the same draws.
#include <doctest/doctest.h>

#include "data/box_changes.h"
#include "data/images/kernels/picture_kernels.h"
#include "vision/coder.h"
#include "vision/recorded_vision.h"

namespace ada::data {
namespace {

using testing::GoldenRow;
using testing::Number;
using testing::VisionFolders;
using vision::test::Difference;
using vision::test::RecordedCases;

Picture RecordedPicture(const RecordedCases& cases, const std::string& name) {
  const auto& shape = cases.file.Find(name)->shape;
  return {static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2]),
          cases.Values<std::uint8_t>(name)};
}

// Pixels side by side, as the recording of colors has them: one row.
Picture RecordedColors(const RecordedCases& cases, const std::string& name) {
  return {1, static_cast<int>(cases.file.Find(name)->shape[0]), 3,
          cases.Values<std::uint8_t>(name)};
}

double LargestStep(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]) * 1.0);
  return largest;
}

std::optional<double> Given(const GoldenRow& row, const std::string& column) {
  if (row.at(column).empty()) return std::nullopt;
  return Number(row, column);
}

int Whole(const GoldenRow& row, const std::string& column) { return std::stoi(row.at(column)); }

Distortion DistortionOf(const GoldenRow& row) {
  Distortion drawn{Given(row, "brightness"),
                   Given(row, "contrast"),
                   Given(row, "saturation"),
                   {},
                   row.at("contrast_first") == "1"};
  if (const auto hue = Given(row, "hue")) drawn.hue = static_cast<int>(*hue);
  return drawn;
}

std::vector<vision::LabeledBox> Labeled(const std::vector<vision::Box>& boxes) {
  std::vector<vision::LabeledBox> labeled;
  for (const vision::Box& box : boxes)
    labeled.push_back({box, static_cast<int>(labeled.size()), false});
  return labeled;
}

// The boxes' labels are their numbers.
void CheckStored(const std::vector<vision::LabeledBox>& kept, const std::vector<vision::Box>& boxes,
                 const std::vector<std::int32_t>& index) {
  REQUIRE(kept.size() == boxes.size());
  REQUIRE(kept.size() == index.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CHECK(kept[i].box == boxes[i]);
    CHECK(kept[i].label == index[i]);
  }
}

Box BoxOfCorners(const GoldenRow& row) {
  const int y0 = Whole(row, "y0"), x0 = Whole(row, "x0");
  return {y0, x0, Whole(row, "y1") - y0, Whole(row, "x1") - x0};
}

const std::map<std::string, Interpolation> kByName = {{"linear", Interpolation::kLinear},
                                                      {"area", Interpolation::kArea},
                                                      {"nearest", Interpolation::kNearest},
                                                      {"cubic", Interpolation::kCubic},
                                                      {"lanczos4", Interpolation::kLanczos4}};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("ssd changes: colours as OpenCV's HSV has them, with every instruction set") {
    for (const std::string& folder : VisionFolders("augment")) {
      CAPTURE(folder);
      const RecordedCases cases(folder, "expand", "hsv");
      Picture hsv = RecordedColors(cases, "rgb");
      RgbToHsv(&hsv);
      CHECK(hsv.pixels == cases.Values<std::uint8_t>("hsv"));
      for (const auto& [from, to] :
           std::map<std::string, std::string>{{"hsv", "back"}, {"anyhsv", "anyrgb"}}) {
        Picture rgb = RecordedColors(cases, from), nearest = rgb;
        HsvToRgb(&rgb, HsvRounding::kOpenCv);
        CHECK(rgb.pixels == cases.Values<std::uint8_t>(to));
        HsvToRgb(&nearest, HsvRounding::kNearest);
        CHECK(LargestStep(nearest.pixels, cases.Values<std::uint8_t>(to)) <= 1);
      }
      const std::vector<std::uint8_t> in = cases.Values<std::uint8_t>("rgb");
      const auto pixels = static_cast<std::ptrdiff_t>(in.size() / 3);
      for (const ColorKernels* kernels : ColorKernelsHere()) {
        CAPTURE(kernels->name);
        std::vector<std::uint8_t> there(in.size()), back(in.size()), best(in.size());
        kernels->rgb_to_hsv(in.data(), pixels, there.data());
        CHECK(there == hsv.pixels);
        kernels->hsv_to_rgb(there.data(), pixels, back.data());
        BestColorKernels().hsv_to_rgb(there.data(), pixels, best.data());
        CHECK(back == best);
        kernels->opencv_to_rgb(there.data(), pixels, pixels / 2, back.data());
        BestColorKernels().opencv_to_rgb(there.data(), pixels, pixels / 2, best.data());
        CHECK(back == best);
      }
    }
  }

  TEST_CASE("ssd changes: distortion in its order, cut off to bytes at every step") {
    for (const std::string& folder : VisionFolders("augment")) {
      const RecordedCases cases(folder, "distort");
      for (const GoldenRow& row : cases.table.rows) {
        CAPTURE(folder + ": " + row.at("case"));
        Picture picture = RecordedPicture(cases, "image." + row.at("image"));
        const Distortion drawn = DistortionOf(row);
        Distort(drawn, HsvRounding::kOpenCv, &picture);
        CHECK(picture.pixels == cases.Values<std::uint8_t>("out." + row.at("case")));
      }
    }
  }

  TEST_CASE("ssd changes: an image on a larger canvas") {
    for (const std::string& folder : VisionFolders("augment")) {
      const RecordedCases cases(folder, "expand");
      const Picture picture = RecordedPicture(cases, "image");
      for (const GoldenRow& row : cases.table.rows) {
        const std::string name = row.at("case");
        CAPTURE(folder + ": " + name);
        const double ratio = Number(row, "ratio");
        const PictureSize size{static_cast<int>(picture.height * ratio),
                               static_cast<int>(picture.width * ratio)};
        CHECK(size == PictureSize{Whole(row, "out_H"), Whole(row, "out_W")});
        const int top = Whole(row, "y_offset"), left = Whole(row, "x_offset");
        const std::vector<vision::Box> boxes = cases.Boxes("bbox." + name),
                                       moved = cases.Boxes("bbox_out." + name);
        for (std::size_t i = 0; i < boxes.size(); ++i)
          CHECK(Translated(boxes[i], static_cast<float>(top), static_cast<float>(left)) ==
                moved[i]);
        if (!cases.Has("out." + name)) continue;
        const Canvas canvas{&picture, size, top, left, {123, 117, 104}};
        const std::vector<float> made =
            ResizeToFloats(canvas, {0, 0, size.height, size.width}, size, Interpolation::kNearest);
        const auto bytes = cases.Values<std::uint8_t>("out." + name);
        CHECK(made == std::vector<float>(bytes.begin(), bytes.end()));
      }
    }
  }

  TEST_CASE("ssd changes: every trial of a crop, the one that is taken, and the boxes in it") {
    for (const std::string& folder : VisionFolders("augment")) {
      const RecordedCases cases(folder, "crop");
      std::map<std::string, std::vector<Box>> candidates;
      std::map<std::string, PictureSize> sizes;
      for (const GoldenRow& row : cases.table.rows)
        sizes[row.at("case")] = {Whole(row, "H"), Whole(row, "W")};
      for (const GoldenRow& row : testing::ReadTable(folder + "/crop_trials.csv").rows) {
        const std::string name = row.at("case");
        CAPTURE(folder + ": " + name + " trial " + row.at("trial"));
        const CropTrial trial{Number(row, "scale"), Number(row, "aspect_ratio"), Whole(row, "top"),
                              Whole(row, "left")};
        const Box box = BoxOfTrial(trial, sizes[name]);
        CHECK(box.height == Whole(row, "crop_h"));
        CHECK(box.width == Whole(row, "crop_w"));
        const Overlaps overlaps = OverlapsWith(box, Labeled(cases.Boxes("bbox." + name)));
        CHECK(overlaps.least == doctest::Approx(Number(row, "iou_min")).epsilon(1e-14));
        CHECK(overlaps.most == doctest::Approx(Number(row, "iou_max")).epsilon(1e-14));
        const bool accepted = Number(row, "min_iou") <= overlaps.least;
        CHECK(accepted == (row.at("accepted") == "1"));
        if (accepted) candidates[name].push_back(box);
      }
      for (const GoldenRow& row : cases.table.rows) {
        const std::string name = row.at("case");
        CAPTURE(folder + ": " + name);
        const Box chosen = BoxOfCorners(row);
        const int number = Whole(row, "chosen");
        if (number == 0)
          CHECK(chosen == Box{0, 0, sizes[name].height, sizes[name].width});
        else if (candidates.contains(name))
          CHECK(chosen == candidates[name][static_cast<std::size_t>(number - 1)]);
        CheckStored(CropBoxes(Labeled(cases.Boxes("bbox." + name)), chosen),
                    cases.Boxes("bbox_out." + name), cases.Values<std::int32_t>("index." + name));
      }
      for (int i = 0; cases.Has("alone.bbox." + std::to_string(i)); ++i) {
        const std::string name = std::to_string(i);
        CAPTURE(folder + ": alone " + name);
        const auto slice = cases.Values<std::int32_t>("alone.slice." + name);
        const Box box{slice[0], slice[1], slice[2] - slice[0], slice[3] - slice[1]};
        CheckStored(CropBoxes(Labeled(cases.Boxes("alone.bbox." + name)), box),
                    cases.Boxes("alone.bbox_out." + name),
                    cases.Values<std::int32_t>("alone.index." + name));
      }
    }
  }

  TEST_CASE("ssd changes: OpenCV's five interpolations") {
    for (const std::string& folder : VisionFolders("augment")) {
      const RecordedCases cases(folder, "resize");
      for (const GoldenRow& row : cases.table.rows) {
        const std::string name = row.at("image") + "." + row.at("interpolation") + "." +
                                 row.at("out_H") + "x" + row.at("out_W");
        CAPTURE(folder + ": " + name);
        const Picture picture = RecordedPicture(cases, "image." + row.at("image"));
        const Canvas canvas{&picture, picture.size(), 0, 0, {}};
        const std::vector<float> made = ResizeToFloats(
            canvas, {0, 0, picture.height, picture.width},
            {Whole(row, "out_H"), Whole(row, "out_W")}, kByName.at(row.at("interpolation")));
        CHECK(Difference(made, cases.Values<float>(name)) <= 1e-5);
      }
    }
  }

  TEST_CASE("ssd changes: boxes of a mirrored and of a resized image") {
    for (const std::string& folder : VisionFolders("augment")) {
      const RecordedCases cases(folder, "expand", "flip");
      const auto sizes = cases.Values<std::int32_t>("resize_from_to");
      const PictureSize from{sizes[0], sizes[1]}, to{sizes[2], sizes[3]};
      const std::vector<vision::Box> boxes = cases.Boxes("bbox"),
                                     mirrored = cases.Boxes("bbox_flipped"),
                                     resized = cases.Boxes("bbox_resized");
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        CHECK(Mirrored(boxes[i], from.width) == mirrored[i]);
        CHECK(ResizedBox(boxes[i], from, to) == resized[i]);
      }
      SsdChanges flip;
      flip.crop = {0, 0, from.height, from.width};
      flip.flip = true;
      std::vector<vision::LabeledBox> none;
      const std::vector<float> made =
          ApplySsdChanges(flip, RecordedPicture(cases, "image"), from, &none);
      const auto bytes = cases.Values<std::uint8_t>("flipped");
      CHECK(made == std::vector<float>(bytes.begin(), bytes.end()));
    }
  }

  TEST_CASE("ssd changes: all of them, and the targets of the boxes that are left") {
    for (const std::string& folder : VisionFolders("augment")) {
      const RecordedCases cases(folder, "pipeline");
      const vision::BoxCoder coder(vision::test::RecordedSpec(folder + "/../ssd", "small"));
      const int side = coder.spec().input;
      for (const GoldenRow& row : cases.table.rows) {
        const std::string name = row.at("case");
        CAPTURE(folder + ": " + name);
        const Picture picture = RecordedPicture(cases, name + ".image");
        SsdChanges changes;
        changes.distortion = DistortionOf(row);
        if (row.at("expand") == "1") {
          const double ratio = Number(row, "ratio");
          changes.expansion = Expansion{
              {static_cast<int>(picture.height * ratio), static_cast<int>(picture.width * ratio)},
              Whole(row, "y_offset"),
              Whole(row, "x_offset")};
          changes.fill = {123, 117, 104};
        }
        changes.crop = BoxOfCorners(row);
        changes.interpolation = kByName.at(row.at("interpolation"));
        changes.flip = row.at("flip") == "1";
        std::vector<vision::LabeledBox> boxes = cases.LabeledBoxes(name);
        const std::vector<float> image =
            ApplySsdChanges(changes, picture, {side, side}, &boxes, HsvRounding::kOpenCv);
        const std::vector<float> out = cases.Values<float>(name + ".out");  // [3, side, side]
        REQUIRE(out.size() == image.size());
        constexpr std::array<float, 3> kMean = {123, 117, 104};
        double off = 0;
        for (std::size_t i = 0; i < image.size(); ++i) {
          const std::size_t c = i % 3, pixel = i / 3;
          const float recorded = out[c * out.size() / 3 + pixel];
          off = std::max(off, std::abs(static_cast<double>(image[i] - kMean[c] - recorded)));
        }
        CHECK(off <= 1e-5 * 255);
        const auto count = static_cast<std::size_t>(coder.boxes());
        std::vector<float> locations(4 * count);
        std::vector<std::int32_t> labels(count);
        coder.Encode(boxes, locations.data(), labels.data(), {0.5, true});
        CHECK(labels == cases.Values<std::int32_t>(name + ".mb_label"));
        CHECK(Difference(locations, cases.Values<float>(name + ".mb_loc")) <= 1e-6);
      }
    }
  }
}

}  // namespace ada::data
