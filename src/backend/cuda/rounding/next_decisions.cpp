// See next_decisions.h.
#include "backend/cuda/rounding/next_decisions.h"

namespace ada::backend::cuda {

std::shared_ptr<NextDecision> NextDecisions::Add(const DecideByMoments& decide) {
  auto added = std::make_shared<NextDecision>();
  added->decide = decide;
  by_moments_.emplace(decide.dy_moments, added);
  return added;
}

// Where several look at the same moments each decides by itself.
std::optional<DecideNextKernel> NextDecisions::Take(const TensorMoments* moments,
                                                    const float* scale) {
  std::shared_ptr<NextDecision> only;
  const auto [begin, end] = by_moments_.equal_range(moments);
  for (auto it = begin; it != end; ++it) {
    const auto one = it->second.lock();
    if (one == nullptr) continue;
    if (only != nullptr || one->decide.scale_in != scale) return std::nullopt;
    only = one;
  }
  if (only == nullptr || run_ == 0) return std::nullopt;
  only->taken_in = run_;
  if (!only->in_one_run) return std::nullopt;
  only->made_in = run_;
  return DecideNextKernel{only->decide};
}

bool NextDecisions::IsMade(NextDecision& decision) const {
  if (run_ == 0) return false;
  if (decision.taken_in == run_) decision.in_one_run = true;
  return decision.made_in == run_;
}

}  // namespace ada::backend::cuda
