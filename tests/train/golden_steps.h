// Whole training steps against those of an independent float64 program (tests/golden/steps): the
// same weights and real images in, the same losses, scales, losses to underflow and weights out.
// Whoever includes this says how a configuration is trained.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "cifar10.h"
#include "io/tensor_files/safetensors.h"
#include "skip.h"
#include "train/small_run.h"

namespace ada::testing {

inline constexpr char kFashion[] = "/usr/share/datasets/fashion-mnist";
inline constexpr char kGolden[] = ADA_SOURCE_DIR "/tests/golden/steps/";
inline constexpr char kLenet[] = R"(
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 5, padding: 2}
    - {name: relu1, kind: relu}
    - {name: pool1, kind: max_pool, kernel: 2}
    - {name: conv2, kind: conv2d, channels: 16, kernel: 3, padding: 1}
    - {name: bn2, kind: batch_norm}
    - {name: relu2, kind: relu}
    - {name: pool2, kind: max_pool, kernel: 2}
    - {name: fc1, kind: linear, features: 32}
    - {name: relu3, kind: relu}
    - {name: fc2, kind: linear, features: 10}
)";

// How far sums in another order, and the roundings that they flip, may lead. Measured with oneDNN
// 2.6.3 on AVX-512: a quarter or less of each.
struct Case {
  std::string name;
  double first_loss, other_losses;  // relative
  double first_norm;                // relative
  double unbound;                   // relative, adaptive only
  double final_weights;             // distance, relative to what training changed
};
inline const Case kLenetCases[] = {
    {"lenet_fp32", 1e-6, 1e-3, 1e-6, 0, 1e-5},
    {"lenet_fp16_adaptive", 4e-4, 5e-3, 1e-4, 1e-4, 0.02},
};
inline const Case kResnetCases[] = {
    {"resnet20_fp32", 1e-6, 1e-3, 1e-3, 0, 0.05},
    {"resnet20_fp16_fixed1", 4e-4, 5e-3, 0.02, 0, 0.15},
    {"resnet20_fp16_fixed1024", 4e-4, 5e-3, 0.02, 0, 0.15},
    {"resnet20_fp16_adaptive", 4e-4, 5e-3, 0.02, 1e-2, 0.15},
};

inline std::string ScalingText(const nlohmann::json& s) {
  if (s.at("policy") == "fixed") return "{policy: fixed, scale: " + s.at("S0").dump() + "}";
  return "{policy: adaptive, fan: exact, init_scale: " + s.at("S0").dump() +
         ", underflow_target: " + s.at("n").dump() + ", scale_upper_bound: " + s.at("SB").dump() +
         ", accum_upper_bound: " + s.at("AB").dump() + ", u_min: " + s.at("u_min").dump() + "}";
}

inline std::string ConfigText(const nlohmann::json& recorded, const std::string& data_path) {
  const bool resnet = recorded.at("net") == "ResNet20";
  const nlohmann::json& o = recorded.at("optimizer");
  const auto images = recorded.at("batch").get<int>() * recorded.at("steps").get<int>();
  const std::string weights = std::string(kGolden) + (resnet ? "resnet20" : "lenet");
  return "data: {dataset: " + std::string(resnet ? "cifar10" : "fashion_mnist") +
         ", path: " + data_path + ", batch_size: " + recorded.at("batch").dump() +
         ", shuffle: false, limit: {train: " + std::to_string(images) + ", test: 64}}\n" +
         "precision: {format: " + recorded.at("format").get<std::string>() + "}\n" +
         "scaling: " + ScalingText(recorded.at("scaling")) + "\n" +
         "optimizer: {kind: sgd, lr: " + o.at("lr").dump() +
         ", momentum: " + o.at("momentum").dump() + ", weight_decay: " + o.at("wd").dump() + "}\n" +
         "log: {every: 1}\nmodel:\n  init: {weights: " + weights + "_init.safetensors}\n" +
         (resnet ? "  zoo: resnet20\n" : kLenet + 1);
}

inline double RelativeError(const GoldenRow& ours, const GoldenRow& recorded,
                            const std::string& column) {
  return std::abs(Number(ours, column) / Number(recorded, column) - 1);
}

inline void CheckSteps(const Case& c, const Table& ours, const Table& recorded) {
  REQUIRE(ours.size() == recorded.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(i);
    CHECK(RelativeError(ours[i], recorded[i], "loss") < (i == 0 ? c.first_loss : c.other_losses));
    CHECK(ours[i].at("skipped") == "0");
  }
  CHECK(Number(ours[0], "accuracy") == Number(recorded[0], "accuracy"));
  CHECK(RelativeError(ours[0], recorded[0], "grad_norm") < c.first_norm);
}

inline void CheckScales(const Case& c, const Table& ours, const Table& recorded, bool adaptive) {
  REQUIRE(ours.size() == recorded.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CAPTURE(recorded[i].at("layer"));
    CHECK(ours[i].at("layer") == recorded[i].at("layer"));
    for (const char* column : {"alpha", "scale_in", "scale_out"})
      CHECK(Number(ours[i], column) == Number(recorded[i], column));
    if (!adaptive) continue;
    CHECK(ours[i].at("limit") == recorded[i].at("limit"));
    CHECK(RelativeError(ours[i], recorded[i], "unbound") < c.unbound);
  }
}

// The recorded `sum` rows carry the block that the branches start from; ours are the dy of the
// layer that feeds it.
inline std::pair<std::string, std::string> OurKey(const GoldenRow& recorded) {
  const std::string& layer = recorded.at("layer");
  if (recorded.at("tensor") != "sum") return {layer, recorded.at("tensor")};
  const int stage = layer.at(5) - '0', block = layer.at(12) - '0';  // stage1.block1
  if (stage == 1 && block == 1) return {"relu1", "dy"};
  const std::string before = block > 1 ? layer.substr(0, 12) + std::to_string(block - 1)
                                       : "stage" + std::to_string(stage - 1) + ".block3";
  return {before + ".relu2", "dy"};
}

inline void CheckUnderflow(const Table& ours, const Table& recorded) {
  std::map<std::pair<std::string, std::string>, GoldenRow> rows;
  for (const GoldenRow& row : ours)
    if (row.at("tensor") != "dw") rows[{row.at("layer"), row.at("tensor")}] = row;
  CHECK(rows.size() == recorded.size());
  std::int64_t our_total = 0, recorded_total = 0;
  for (const GoldenRow& row : recorded) {
    const auto key = OurKey(row);
    CAPTURE(key.first);
    CAPTURE(key.second);
    REQUIRE(rows.contains(key));
    const GoldenRow& mine = rows[key];
    CHECK(mine.at("numel") == row.at("numel"));
    CHECK(Number(mine, "scale") == Number(row, "scale"));
    CHECK(RelativeError(mine, row, "std") < 0.02);
    CHECK(mine.at("overflow") == row.at("overflow"));
    our_total += std::stoll(mine.at("underflow"));
    recorded_total += std::stoll(row.at("underflow"));
  }
  CAPTURE(our_total);
  CAPTURE(recorded_total);
  CHECK(std::abs(our_total - recorded_total) <= 0.15 * static_cast<double>(recorded_total));
}

// All tensors together, running statistics apart: these move much further than weights.
inline void CheckFinal(const Case& c, const std::string& ours_path, const std::string& init_path,
                       const std::string& recorded_path) {
  const SafetensorsFile ours = SafetensorsFile::Open(ours_path),
                        init = SafetensorsFile::Open(init_path),
                        recorded = SafetensorsFile::Open(recorded_path);
  double apart = 0, moved = 0;
  for (const TensorEntry& entry : recorded.entries()) {
    if (Contains(entry.name, "running_")) continue;
    const std::vector<float> a = ours.ReadF32(entry.name), b = recorded.ReadF32(entry.name),
                             start = init.ReadF32(entry.name);
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      apart += std::pow(static_cast<double>(a[i]) - b[i], 2);
      moved += std::pow(static_cast<double>(b[i]) - start[i], 2);
    }
  }
  CAPTURE(std::sqrt(apart / moved));
  CHECK(std::sqrt(apart / moved) < c.final_weights);
}

// `train(text, folder)` trains the configuration `text`; its run goes to the returned folder.
template <class Train>
void CheckCase(const Case& c, const std::string& data_path, Train&& train) {
  CAPTURE(c.name);
  const std::string golden = kGolden + c.name;
  const auto recorded = nlohmann::json::parse(ReadBytes(golden + "/case.json"));
  const TempFolder folder;
  const std::string run = train(ConfigText(recorded, data_path), folder);
  auto first = [](const std::string& path) { return RowsWhere(ReadCsv(path), "step", "1"); };

  CheckSteps(c, ReadCsv(run + "/steps.csv"), ReadCsv(golden + "/steps.csv"));
  Table scales = first(run + "/scales.csv");
  std::erase_if(scales, [](const GoldenRow& row) { return row.at("limit") == "branch"; });
  CheckScales(c, scales, first(golden + "/scales.csv"),
              recorded.at("scaling").at("policy") == "adaptive");
  CheckUnderflow(first(run + "/underflow.csv"), first(golden + "/underflow.csv"));
  const std::string net = c.name.substr(0, c.name.find('_'));
  CheckFinal(c, NewestCheckpoint(run), kGolden + net + "_init.safetensors",
             golden + "/final.safetensors");
}

}  // namespace ada::testing
