// Which of a library's plans for a product are built, in which order: by their names alone.
//
// cuDNN names a plan by its engine and its settings ("eng67_k2=4_k13=0"). Products with an epilogue
// (a scale, fp32 sums of 16-bit operands) are compiled at run time, by eng1 for sm_80, which its
// heuristics put first, or by eng2 for sm_90 (wgmma), which comes last. On an H200 eng1 of cuDNN
// 9.14 gave data gradients that were not multiplied by the scale that lies on the device.
#pragma once
#include <string>
#include <vector>

#include "backend/cuda/matmul_request.h"

namespace ada::backend::cuda {

// "eng67" of the name above.
std::string EngineOf(const std::string& plan);

// The settings of device.autotune and the switches, and the needs of the request.
struct PlanChoice {
  bool autotune = false;  // several are measured
  int skip = 0;           // so many engines, of the first by the heuristics
  bool only_sm90 = false;
};
// Whether only plans of the engine for sm_90 are used: for scaled data gradients.
bool NeedsSm90(const MatmulRequest& request);

// Indices of `plans`, which come best first by the heuristics, in the order in which they are to be
// built. To be measured: one plan of each engine, then the others.
std::vector<int> PlansToBuild(const std::vector<std::string>& plans, const PlanChoice& choice);

// Describes the settings that a plan on disk is made with, as a part of its key.
std::string KeyOf(const PlanChoice& choice);

}  // namespace ada::backend::cuda
