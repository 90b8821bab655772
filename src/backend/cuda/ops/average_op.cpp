// Running averages of tensors: a launch each.
#include "backend/cuda/launch.h"
#include "backend/cuda/op_makers.h"
#include "backend/update_rules.h"

namespace ada::backend::cuda {
namespace {

// One step of value i of an average, with the function that every backend uses.
struct MoveAverage {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    average[i] = Averaged(scalars, average[i], value[i]);
  }
  AverageScalars scalars;
  const float* value = nullptr;
  float* average = nullptr;
};

// The averages of weights that are evaluated in place of the masters. `keep` changes from step to
// step, so that the launches are not recorded.
class CudaAverage final : public AverageOp {
 public:
  CudaAverage(const Context& context, const std::vector<AverageSlot>& slots)
      : context_(context), slots_(slots) {}

  void Step(double keep) override {
    const AverageScalars scalars = MakeAverageScalars(keep);
    for (const AverageSlot& slot : slots_)
      ForEach(context_.stream, slot.value.shape.numel(),
              MoveAverage{scalars, slot.value.f32(), slot.average.f32()});
  }

 private:
  Context context_;
  std::vector<AverageSlot> slots_;
};

}  // namespace

std::unique_ptr<AverageOp> MakeAverageOp(const Context& context,
                                         const std::vector<AverageSlot>& slots) {
  return std::make_unique<CudaAverage>(context, slots);
}

}  // namespace ada::backend::cuda
