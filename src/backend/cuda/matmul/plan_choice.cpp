// See plan_choice.h.
#include "backend/cuda/matmul/plan_choice.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <utility>

#include "error.h"
#include "io/file.h"
#include "io/hash.h"

namespace ada::backend::cuda {

namespace {

constexpr char kSm90Engine[] = "eng2";

using Names = std::vector<std::string>;

std::size_t IndexOf(const Names& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

// Plans by the step in which they are built; passed over: none.
enum Step { kFirst, kLater, kNever };

}  // namespace

std::string EngineOf(const std::string& plan) { return plan.substr(0, plan.find('_')); }

bool NeedsSm90(const MatmulRequest& request) {
  return request.kind == MatmulKind::kData && request.scale && request.operands != Storage::kF32 &&
         !HasCodes(request);
}

// An engine appears with several settings: one plan of each first covers more in the same time.
std::vector<int> PlansToBuild(const Names& plans, const PlanChoice& choice) {
  Names engines;  // in the order in which they first appear
  std::vector<Step> steps;
  for (const std::string& plan : plans) {
    const std::string engine = EngineOf(plan);
    const std::size_t number = IndexOf(engines, engine);
    const bool is_new = number == engines.size();
    if (is_new) engines.push_back(engine);
    const bool is_out = number < static_cast<std::size_t>(choice.skip) ||
                        (choice.only_sm90 && engine != kSm90Engine);
    steps.push_back(is_out ? kNever : choice.autotune && is_new ? kFirst : kLater);
  }
  std::vector<int> order;
  for (const Step step : {kFirst, kLater})
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (steps[i] == step) order.push_back(static_cast<int>(i));
  return order;
}

std::string KeyOf(const PlanChoice& choice) {
  std::string key;
  if (choice.autotune) key += ", measured";
  if (choice.skip > 0) key += ", without " + std::to_string(choice.skip) + " engines";
  return key;
}

// --- Plans on disk ---

namespace {

constexpr std::uint64_t kLargestFile = std::uint64_t{64} << 20;

std::string HashOf(std::string_view text) { return HashBytes(std::as_bytes(std::span(text))); }

}  // namespace

PlanCache::PlanCache(std::string folder, std::string maker)
    : folder_(std::move(folder)), maker_(std::move(maker)) {}

std::string PlanCache::PathOf(const std::string& key) const {
  return folder_ + "/" + HashOf(maker_ + "\n" + key) + ".plan";
}

std::string PlanCache::HeadOf(const std::string& key, std::string_view plan) const {
  return "ada-train plan 1\n" + maker_ + "\n" + key + "\n" + HashOf(plan) + "\n";
}

// A file is its head, four lines (what it is, maker, key, hash of the plan), and the plan. The head
// is compared as a whole: a name that two keys share, or a file that was cut off, is found out.
std::optional<std::vector<std::uint8_t>> PlanCache::Find(const std::string& key) {
  if (folder_.empty()) return std::nullopt;
  const std::string path = PathOf(key);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  std::string bytes;
  if (const FileProblem problem = TryReadFile(path, kLargestFile, &bytes); !problem.words.empty()) {
    diagnostics_.push_back("plan cache: " + problem.words);
    return std::nullopt;
  }
  const std::size_t head = HeadOf(key, "").size();
  const std::string_view plan = std::string_view(bytes).substr(std::min(head, bytes.size()));
  if (plan.empty() || bytes.compare(0, head, HeadOf(key, plan)) != 0) {
    diagnostics_.push_back("plan cache: " + path +
                           " is damaged or of another device; planned anew");
    return std::nullopt;
  }
  return std::vector<std::uint8_t>(plan.begin(), plan.end());
}

// After a failure nothing more is tried; one line says why.
void PlanCache::Store(const std::string& key, const std::vector<std::uint8_t>& plan) {
  if (folder_.empty() || plan.empty()) return;
  const std::string_view text(reinterpret_cast<const char*>(plan.data()), plan.size());
  try {
    CreateFolders(folder_);
    WriteFileAtomically(PathOf(key), HeadOf(key, text) + std::string(text));
  } catch (const OutputError& e) {
    diagnostics_.push_back(std::string("plan cache: nothing is kept: ") + e.what());
    folder_.clear();
  }
}

void PlanCache::Refuse(const std::string& key) {
  diagnostics_.push_back("plan cache: " + PathOf(key) + " is refused by the library; planned anew");
}

std::vector<std::string> PlanCache::TakeDiagnostics() { return std::exchange(diagnostics_, {}); }

std::string PlanCacheFolder() {
  if (const char* own = std::getenv("ADA_CACHE_DIR"); own != nullptr) return own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] != '\0')
    return std::string(cache) + "/ada-train";
  const char* home = std::getenv("HOME");
  return home == nullptr || home[0] == '\0' ? "" : std::string(home) + "/.cache/ada-train";
}

}  // namespace ada::backend::cuda
