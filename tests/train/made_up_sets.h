// Small sets in the layouts of CamVid and of VOC, whose label is a color: shapes on a dark ground.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "number/random.h"
#include "temp_folder.h"

namespace ada::testing {

// A box of one of the classes, in pixels.
struct MadeUpShape {
  int label = 0, top = 0, left = 0, height = 0, width = 0;
};

inline data::Picture DrawShapes(int height, int width, const std::vector<MadeUpShape>& shapes,
                                RandomStream& random) {
  data::Picture picture{height, width, 3, {}};
  for (int i = 0; i < height * width * 3; ++i)
    picture.pixels.push_back(static_cast<std::uint8_t>(30 + 20 * random.Uniform()));
  for (const MadeUpShape& shape : shapes)
    for (int y = shape.top; y < shape.top + shape.height; ++y)
      for (int x = shape.left; x < shape.left + shape.width; ++x)
        picture.pixels[static_cast<std::size_t>((y * width + x) * 3 + shape.label)] =
            static_cast<std::uint8_t>(180 + 40 * random.Uniform());
  return picture;
}

// A shape of each of the classes 0 and 1, which may overlap.
inline std::vector<MadeUpShape> DrawMadeUpShapes(int height, int width, RandomStream& random) {
  std::vector<MadeUpShape> shapes;
  for (const int label : {0, 1}) {
    MadeUpShape shape{label};
    shape.height = height / 4 + static_cast<int>(random.Uniform() * height / 4);
    shape.width = width / 4 + static_cast<int>(random.Uniform() * width / 4);
    shape.top = static_cast<int>(random.Uniform() * static_cast<float>(height - shape.height));
    shape.left = static_cast<int>(random.Uniform() * static_cast<float>(width - shape.width));
    shapes.push_back(shape);
  }
  return shapes;
}

// <folder>/<name>/train, trainannot, test, testannot: classes 0 and 1 are the shapes, 2 the ground;
// the first row has a label that stands for none. Odd sizes.
inline void WriteCamvid(const TempFolder& folder, const std::string& name, int train, int test,
                        int ignored = 255) {
  constexpr int kHeight = 23, kWidth = 30;
  RandomStream random(7, 1);
  for (const auto& [split, count] : {std::pair(std::string("train"), train), {"test", test}}) {
    const std::string base = folder / (name + "/" + split);
    std::filesystem::create_directories(base);
    std::filesystem::create_directories(base + "annot");
    for (int i = 0; i < count; ++i) {
      const auto shapes = DrawMadeUpShapes(kHeight, kWidth, random);
      const std::string file = "/image" + std::to_string(100 + i) + ".png";
      data::WritePng(base + file, DrawShapes(kHeight, kWidth, shapes, random));
      data::Picture labels{kHeight, kWidth, 1,
                           std::vector<std::uint8_t>(std::size_t{kHeight} * kWidth, 2)};
      const auto at = [&](int y, int x) -> std::uint8_t& {
        return labels.pixels[static_cast<std::size_t>(y * kWidth + x)];
      };
      for (const MadeUpShape& s : shapes)
        for (int y = s.top; y < s.top + s.height; ++y)
          for (int x = s.left; x < s.left + s.width; ++x)
            at(y, x) = static_cast<std::uint8_t>(s.label);
      for (int x = 0; x < kWidth; ++x) at(0, x) = static_cast<std::uint8_t>(ignored);
      data::WritePng(base + "annot" + file, labels);
    }
  }
}

// <folder>/<name> with ImageSets/Main, JPEGImages and Annotations; classes `cell` and `plate`.
// Every fifth image has no object, every fourth a difficult one.
inline void WriteVoc(const TempFolder& folder, const std::string& name, int train, int test) {
  constexpr int kHeight = 40, kWidth = 60;
  const char* const names[] = {"cell", "plate"};
  RandomStream random(9, 1);
  const std::string base = folder / name;
  for (const char* part : {"/ImageSets/Main", "/JPEGImages", "/Annotations"})
    std::filesystem::create_directories(base + part);
  for (const auto& [split, count] : {std::pair(std::string("trainval"), train), {"test", test}}) {
    std::string list;
    for (int i = 0; i < count; ++i) {
      const std::string image = split + std::to_string(100 + i);
      list += image + "\n";
      const auto shapes =
          i % 5 == 4 ? std::vector<MadeUpShape>{} : DrawMadeUpShapes(kHeight, kWidth, random);
      data::WritePng(base + "/JPEGImages/" + image + ".jpg",
                     DrawShapes(kHeight, kWidth, shapes, random));
      std::string xml =
          "<annotation><size><width>60</width><height>40</height><depth>3</depth>"
          "</size>";
      for (const MadeUpShape& s : shapes)
        xml += "<object><name>" + std::string(names[s.label]) + "</name><difficult>" +
               (s.label == 1 && i % 4 == 3 ? "1" : "0") + "</difficult><bndbox><xmin>" +
               std::to_string(s.left + 1) + "</xmin><ymin>" + std::to_string(s.top + 1) +
               "</ymin><xmax>" + std::to_string(s.left + s.width) + "</xmax><ymax>" +
               std::to_string(s.top + s.height) + "</ymax></bndbox></object>";
      folder.Write(name + "/Annotations/" + image + ".xml", xml + "</annotation>\n");
    }
    folder.Write(name + "/ImageSets/Main/" + split + ".txt", list);
  }
}

// Ten epochs of five steps.
inline constexpr char kSegmentationRun[] = R"(
task: segmentation
seed: 3
device: {kind: cpu, threads: 2}
data:
  dataset: camvid
  path: shapes
  class_names: [first, second, ground]
  batch_size: 4
  evaluate_batch_size: 3
  augment: {horizontal_flip: true}
  workers: 1
model:
  layers:
    - {name: norm0, kind: lrn}
    - {name: conv1, kind: conv2d, channels: 8, kernel: 5, padding: 2, bias: false}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: pool1, kind: max_pool, kernel: 2, ceil_mode: true}
    - {name: unpool1, kind: max_unpool, pool: pool1}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 5, padding: 2, bias: false}
    - {name: bn2, kind: batch_norm}
    - {name: classifier, kind: conv2d, channels: classes, kernel: 1}
    - {name: cast, kind: scale}
precision: {format: fp16, layers: [{match: cast, format: fp32}]}
scaling: {policy: adaptive, update_interval: 3, layers: [{match: cast, method: lognormal}]}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9, weight_decay: 5.0e-4}
train: {epochs: 10, class_weights: median_frequency}
evaluate: {every_epochs: 5, recompute_batch_norm: true}
log: {every: 10}
checkpoint: {every_steps: 15, best: true}
)";

inline constexpr char kDetectionRun[] = R"(
task: detection
seed: 3
device: {kind: cpu, threads: 2}
data:
  dataset: voc
  path: shapes
  batch_size: 4
  evaluate_batch_size: 3
  resize: [48, 48]
  augment: {ssd: {expand: false}}
  workers: 1
detection:
  boxes: {grids: [6, 3], steps: [8, 16], sizes: [10, 18, 30], aspect_ratios: [[2], [2]]}
model:
  outputs: [cast1, cast2]
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, stride: 2, padding: 1, bias: false}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 12, kernel: 3, stride: 2, padding: 1, bias: false}
    - {name: bn2, kind: batch_norm}
    - {name: relu2, kind: relu}
    - {name: conv3, kind: conv2d, channels: 16, kernel: 3, stride: 2, padding: 1}
    - {name: relu3, kind: relu}
    - {name: norm3, kind: l2_normalize, value: 10}
    - {name: conv4, kind: conv2d, channels: 16, kernel: 3, stride: 2, padding: 1, inputs: [relu3]}
    - {name: relu4, kind: relu}
    - {name: loc3, kind: conv2d, channels: 16, kernel: 3, padding: 1, inputs: [norm3]}
    - {name: loc4, kind: conv2d, channels: 16, kernel: 3, padding: 1, inputs: [relu4]}
    - {name: locations, kind: concat_boxes, values: 4, inputs: [loc3, loc4]}
    - {name: cast1, kind: scale}
    - {name: conf3, kind: conv2d, channels: 12, kernel: 3, padding: 1, inputs: [norm3]}
    - {name: conf4, kind: conv2d, channels: 12, kernel: 3, padding: 1, inputs: [relu4]}
    - {name: scores, kind: concat_boxes, values: 3, inputs: [conf3, conf4]}
    - {name: cast2, kind: scale}
precision: {format: fp16, layers: [{match: "cast?", format: fp32}]}
scaling: {policy: adaptive, update_interval: 3, layers: [{match: "cast?", method: lognormal}]}
optimizer: {kind: sgd, lr: 0.02, momentum: 0.9, weight_decay: 5.0e-4}
schedule: {kind: linear}
train: {epochs: 40, clip_norm: 10}
evaluate: {every_epochs: 20}
log: {every: 10}
checkpoint: {every_steps: 15, best: true}
)";

}  // namespace ada::testing
