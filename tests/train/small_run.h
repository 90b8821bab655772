// A run of a fraction of a second that uses whatever carries state from step to step: branches,
// batch norm, dropout, augmentation, momentum, accumulation, scales that are looked at now and
// then, validation, checkpoints between epochs.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "temp_folder.h"
#include "train/program.h"
#include "train/run_files.h"

namespace ada::testing {

inline constexpr char kSmallNetwork[] = R"(
data:
  dataset: synthetic
  synthetic: {height: 12, width: 12, channels: 3, classes: 10, train: 130, test: 30}
  batch_size: 20
  evaluate_batch_size: 16
  augment: {pad: 2, random_crop: true, horizontal_flip: true}
  validation: 10
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1, bias: false}
    - {name: bn1, kind: batch_norm}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: join, kind: add, inputs: [conv2, relu1]}
    - {name: relu2, kind: relu}
    - {name: pool, kind: max_pool, kernel: 3, stride: 2}
    - {name: drop, kind: dropout, rate: 0.2}
    - {name: fc, kind: linear, features: 10}
precision: {format: fp16}
optimizer: {kind: sgd, lr: 0.02, momentum: 0.9, weight_decay: 1e-4}
)";

// Six steps an epoch. Evaluations each epoch, checkpoints every four steps.
inline constexpr char kSmallRun[] = R"(
name: small
seed: 3
device: {kind: cpu, threads: 2}
scaling: {policy: adaptive, update_interval: 5, init_scale: 0.001, accum_upper_bound: 4096}
train: {epochs: 8, accumulate: 2}
log: {every: 3}
checkpoint: {every_steps: 4, keep: 3, best: true}
)";

// A configuration file "<name>.yaml" in `folder` whose run goes to "<folder>/<name>"; returns the
// arguments that train it.
inline std::vector<std::string> WriteConfig(const TempFolder& folder, const std::string& name,
                                            const std::string& text) {
  folder.Write(name + ".yaml", text);
  return {"--config", name + ".yaml", "--output", name, "--no-progress"};
}

inline std::vector<std::string> With(std::vector<std::string> arguments,
                                     const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

inline std::string SmallRun() { return std::string(kSmallNetwork) + kSmallRun; }

}  // namespace ada::testing
