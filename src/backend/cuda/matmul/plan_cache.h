// Plans kept on disk from run to run: one file for each request, device and version of the library.
// A file that is damaged or not of this device is passed over and replaced; no failure of the disk
// ends a run.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ada::backend::cuda {

// Several processes may use one folder: files are written whole, under names that maker and key
// decide.
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
