// What runs of equal configurations and other numbers of ranks, or other backends, have in common.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "parallel/distributed_run.h"

namespace ada::testing {

// Without batch norm: every value of an image is that of a single process. Branches, dropout,
// augmentation, stochastic choices and a policy that looks at all gradients.
inline constexpr char kPlain[] = R"(
name: plain
seed: 5
device: {kind: cpu, threads: 1}
data:
  dataset: synthetic
  synthetic: {height: 10, width: 10, channels: 3, classes: 7, train: 90, test: 37}
  batch_size: 18
  evaluate_batch_size: 8
  augment: {pad: 2, random_crop: true, horizontal_flip: true}
model:
  classes: 7
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: join, kind: add, inputs: [conv2, relu1]}
    - {name: relu2, kind: relu}
    - {name: drop, kind: dropout, rate: 0.25}
    - {name: fc, kind: linear, features: 7}
precision: {format: fp16}
optimizer: {kind: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 2}
log: {every: 1, statistics: [y, w, dx, dw, dy], histogram_every: 1, probe_every: 4}
)";

inline constexpr char kNorms[] = R"(
name: norms
seed: 5
device: {kind: cpu, threads: 1}
data:
  dataset: synthetic
  synthetic: {height: 10, width: 10, channels: 3, classes: 7, train: 90, test: 37}
  batch_size: 18
  evaluate_batch_size: 8
model:
  classes: 7
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1, bias: false}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 3, padding: 1, bias: false}
    - {name: bn2, kind: batch_norm}
    - {name: join, kind: add, inputs: [bn2, relu1]}
    - {name: fc, kind: linear, features: 7}
precision: {format: fp32}
optimizer: {kind: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 2}
log: {every: 1, statistics: [y, w, dx, dw, dy]}
parallel: {sync_batch_norm: true}
)";

// A language model: attention with dropout, a tied weight. `data.path` is to be given: a text.
inline constexpr char kWords[] = R"(
name: words
seed: 5
device: {kind: cpu, threads: 1}
task: language
data: {dataset: text, context: 12, batch_size: 6, evaluate_batch_size: 4, validation: 0.2}
model: {zoo: gpt2, layers: 2, heads: 2, width: 16, dropout: 0.1}
precision: {format: fp16}
scaling: {policy: adaptive, init_scale: 0.01}
optimizer: {kind: adamw, lr: 0.003, no_decay: [vectors]}
train: {max_steps: 6}
log: {every: 1, statistics: [y, w, dx, dw, dy]}
)";

inline double NumberIn(const GoldenRow& row, const std::string& column) {
  return std::stod(row.at(column));
}

// In rows of step 1 with equal names, columns that are counts are equal within `share` of numel.
inline void CompareCounts(const std::string& one, const std::string& other, double share) {
  const Table a = RowsWhere(ReadCsv(one + "/underflow.csv"), "step", "1");
  const Table b = RowsWhere(ReadCsv(other + "/underflow.csv"), "step", "1");
  REQUIRE(a.size() == b.size());
  REQUIRE(!a.empty());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].at("layer"));
    CAPTURE(a[i].at("tensor"));
    CHECK(a[i].at("layer") == b[i].at("layer"));
    CHECK(a[i].at("tensor") == b[i].at("tensor"));
    CHECK(a[i].at("numel") == b[i].at("numel"));
    for (const char* column : {"underflow", "overflow", "zeros_before", "subnormal"}) {
      CAPTURE(column);
      CHECK(std::fabs(NumberIn(a[i], column) - NumberIn(b[i], column)) <=
            share * NumberIn(a[i], "numel"));
    }
  }
}

inline void CompareScales(const std::string& one, const std::string& other) {
  const Table a = RowsWhere(ReadCsv(one + "/scales.csv"), "step", "1");
  const Table b = RowsWhere(ReadCsv(other + "/scales.csv"), "step", "1");
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].at("layer") == b[i].at("layer"));
    CHECK(a[i].at("alpha") == b[i].at("alpha"));
    CHECK(a[i].at("scale_out") == b[i].at("scale_out"));
  }
}

inline void CompareLosses(const std::string& one, const std::string& other, double first,
                          double later) {
  const Table a = ReadCsv(one + "/steps.csv"), b = ReadCsv(other + "/steps.csv");
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    const double loss = NumberIn(a[i], "loss");
    CHECK(std::fabs(loss - NumberIn(b[i], "loss")) <= (i == 0 ? first : later) * std::fabs(loss));
    if (i == 0) CHECK(a[i].at("accuracy") == b[i].at("accuracy"));
    CHECK(a[i].at("overflow") == b[i].at("overflow"));
  }
  const Table c = ReadCsv(one + "/evaluation.csv"), d = ReadCsv(other + "/evaluation.csv");
  REQUIRE(c.size() == d.size());
  for (std::size_t i = 0; i < c.size(); ++i) CHECK(c[i].at("images") == d[i].at("images"));
}

}  // namespace ada::testing
