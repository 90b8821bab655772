// What the parts of a loss (its rows, images or blocks of threads) add up to, over the calls that
// go on with each other.
#pragma once
#include <cstring>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/launch.h"

namespace ada::backend::cuda {

class LossTotal {
 public:
  // most: parts of a call.
  LossTotal(const Context& context, std::int64_t most)
      : context_(context),
        result_(context.shared.Allocate(sizeof(LossResult))),
        parts_(context.Allocate<LossResult>(most)) {}
  // For a kernel that writes them.
  LossResult* parts() const { return parts_; }
  // Behind it: adds up the first `parts`.
  void Add(const Pass& pass, std::int64_t parts) const {
    auto* result = reinterpret_cast<LossResult*>(result_.backend);
    Launch(context_.stream, LossSum{parts_, static_cast<int>(parts), pass.accumulate, result}, 1);
  }
  LossResult Result() const {
    context_.shared.Fetch(result_);
    context_.stream.Synchronize();
    LossResult result;
    std::memcpy(&result, result_.host, sizeof result);
    return result;
  }

 private:
  Context context_;
  SharedMemory result_;
  LossResult* parts_;
};

}  // namespace ada::backend::cuda
