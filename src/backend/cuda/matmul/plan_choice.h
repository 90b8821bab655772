// Which of a library's plans for a product are built, in which order, by their names alone; and
// plans kept on disk from run to run.
//
// cuDNN names a plan by its engine and its settings ("eng67_k2=4_k13=0"). Products with an epilogue
// (a scale, fp32 sums of 16-bit operands) are compiled at run time, by eng1 for sm_80, which its
// heuristics put first, or by eng2 for sm_90 (wgmma), which comes last. On an H200 eng1 of cuDNN
// 9.14 gave data gradients that were not multiplied by the scale that lies on the device.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

// --- Plans on disk ---

// Plans kept from run to run: a file for each request, device and version of the library. A file
// that is damaged or not of this device is passed over and replaced; no failure of the disk ends a
// run. Several processes may use one folder: files are written whole, under names that maker and
// key decide.
class PlanCache {
 public:
  // folder: created if missing; "": plans are not kept. maker: one line that says for what plans
  // are valid ("NVIDIA H200, sm_90, cuDNN 9.19.0").
  PlanCache(std::string folder, std::string maker);

  // The plan that was stored under `key` (one line), if it is whole and of this maker.
  std::optional<std::vector<std::uint8_t>> Find(const std::string& key);
  void Store(const std::string& key, const std::vector<std::uint8_t>& plan);
  // The plan that Find returned cannot be used after all.
  void Refuse(const std::string& key);
  std::string PathOf(const std::string& key) const;
  // What went wrong since the last call, one line each.
  std::vector<std::string> TakeDiagnostics();

 private:
  std::string HeadOf(const std::string& key, std::string_view plan) const;
  std::string folder_, maker_;
  std::vector<std::string> diagnostics_;
};

// $ADA_CACHE_DIR, else ada-train in $XDG_CACHE_HOME, else in ~/.cache; "" where ADA_CACHE_DIR is
// set and empty or none of them is set.
std::string PlanCacheFolder();

}  // namespace ada::backend::cuda
