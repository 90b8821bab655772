// Decisions that are made by the launch that takes the moments they look at.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "backend/cuda/kernels/attention_decisions.h"
#include "backend/cuda/kernels/decide.h"

namespace ada::backend::cuda {

// A decision that looks at nothing but moments and scales. All of these are there when the launch
// that rounds dy ends, so that its last block can make the decision. It does so where both ops are
// called in the same Backend::Run, as was seen the first time: else something may be done between
// the two that the decision has to see, or must not be seen before.
struct NextDecision {
  DecideNextKernel decide;
  const float* scale_in = nullptr;  // of dy
  // In which Run the moments were taken last, and in which that launch decided as well; 0: in none.
  std::uint64_t taken_in = 0, made_in = 0;
  bool in_one_run = false;
};

// By the moments of dy. Those who decide add, those who round look; the backend has one.
class NextDecisions {
 public:
  // A Backend::Run that is no part of another one, while it lives.
  class Run {
   public:
    explicit Run(NextDecisions& all) : all_(all) { all_.run_ = ++all_.runs_; }
    ~Run() { all_.run_ = 0; }
    Run(const Run&) = delete;

   private:
    NextDecisions& all_;
  };

  std::shared_ptr<NextDecision> Add(const DecideByMoments& layer) {
    return Add({layer, {}}, layer.dy_moments, layer.scale_in);
  }
  // dy: its moments, which must be those that `decide` looks at; scale_in: what it carries.
  std::shared_ptr<NextDecision> Add(const DecideNextKernel& decide, const TensorMoments* dy,
                                    const float* scale_in) {
    auto added = std::make_shared<NextDecision>();
    added->decide = decide, added->scale_in = scale_in;
    by_moments_.emplace(dy, added);
    return added;
  }
  // What the launch that now takes these moments, of a gradient that carries *scale, is to decide
  // at its end; unset: nothing.
  std::optional<DecideNextKernel> Take(const TensorMoments* moments, const float* scale) {
    const auto only = OnlyOne(moments);
    if (run_ == 0 || only == nullptr || only->scale_in != scale) return std::nullopt;
    only->taken_in = run_;
    if (!only->in_one_run) return std::nullopt;
    only->made_in = run_;
    return only->decide;
  }
  // Whether that launch has made the decision, which is to be made now.
  bool IsMade(NextDecision& decision) const {
    if (run_ == 0) return false;
    if (decision.taken_in == run_) decision.in_one_run = true;
    return decision.made_in == run_;
  }

 private:
  // The decision that looks at these moments; null: there is none, or there are several, each of
  // which decides by itself.
  std::shared_ptr<NextDecision> OnlyOne(const TensorMoments* moments) const {
    std::shared_ptr<NextDecision> only;
    const auto [begin, end] = by_moments_.equal_range(moments);
    for (auto it = begin; it != end; ++it) {
      const auto one = it->second.lock();
      if (one != nullptr && only != nullptr) return nullptr;
      if (one != nullptr) only = one;
    }
    return only;
  }

  std::multimap<const TensorMoments*, std::weak_ptr<NextDecision>> by_moments_;
  std::uint64_t runs_ = 0, run_ = 0;
};

}  // namespace ada::backend::cuda
