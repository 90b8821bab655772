// See plan_choice.h.
#include "backend/cuda/matmul/plan_choice.h"

#include <algorithm>
#include <cstddef>

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

}  // namespace ada::backend::cuda
