// See plan_choice.h.
#include "backend/cuda/products/plan_choice.h"

#include <algorithm>
#include <numeric>

namespace ada::backend::cuda {
namespace {

constexpr char kRunTimeEngine[] = "eng1", kKernel[] = "_k24=", kSm90Kernel[] = "eng1_k24=41";

// In the order in which they first appear.
std::vector<std::string> EnginesOf(const std::vector<std::string>& plans) {
  std::vector<std::string> engines;
  for (const std::string& plan : plans)
    if (std::string engine = EngineOf(plan);
        std::find(engines.begin(), engines.end(), engine) == engines.end())
      engines.push_back(std::move(engine));
  return engines;
}

}  // namespace

std::string EngineOf(const std::string& plan) {
  const std::string engine = plan.substr(0, plan.find('_'));
  const std::size_t kernel = plan.find(kKernel);
  if (engine != kRunTimeEngine || kernel == std::string::npos) return engine;
  const std::size_t end = plan.find('_', kernel + 1);
  return engine + plan.substr(kernel, end == std::string::npos ? end : end - kernel);
}

bool PrefersSm90(const ProductRequest& request) {
  return request.kind == ProductKind::kData && request.scale && request.operands != Storage::kF32 &&
         !HasCodes(request);
}

std::vector<int> PlansToBuild(const std::vector<std::string>& plans, const PlanChoice& choice) {
  std::vector<std::string> engines = EnginesOf(plans);
  const auto skip = std::min(engines.size(), static_cast<std::size_t>(choice.skip));
  engines.erase(engines.begin(), engines.begin() + static_cast<std::ptrdiff_t>(skip));
  const auto rank = [&](std::size_t plan) {
    const std::string engine = EngineOf(plans[plan]);
    const auto at = std::find(engines.begin(), engines.end(), engine);
    if (at == engines.end()) return 3;  // passed over
    if (!choice.autotune) return choice.prefers_sm90 && engine == kSm90Kernel ? 0 : 1;
    const bool is_first =
        std::none_of(plans.begin(), plans.begin() + static_cast<std::ptrdiff_t>(plan),
                     [&](const std::string& p) { return EngineOf(p) == engine; });
    return is_first ? 0 : 1;
  };
  std::vector<int> order, ranks;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    ranks.push_back(rank(i));
    if (ranks.back() < 3) order.push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return ranks[static_cast<std::size_t>(a)] < ranks[static_cast<std::size_t>(b)];
  });
  return order;
}

std::string KeyOf(const PlanChoice& choice) {
  std::string key;
  if (choice.autotune) key += ", measured";
  if (choice.skip > 0) key += ", without " + std::to_string(choice.skip) + " engines";
  return key;
}

}  // namespace ada::backend::cuda
