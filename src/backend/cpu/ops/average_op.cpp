// Running averages of tensors, in segments shared by the workers.
#include <utility>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/update_rules.h"

namespace ada::backend::cpu {
namespace {

// The averages of weights that are evaluated in place of the masters.
// run/evaluate/weights.cpp makes it and calls Step between updates; an average shares no
// memory with its value.
class CpuAverage final : public AverageOp {
 public:
  CpuAverage(const Context& context, std::vector<AverageSlot> slots)
      : context_(context), slots_(std::move(slots)) {}

  void Step(double keep) override {
    const AverageScalars s = MakeAverageScalars(keep);
    for (const AverageSlot& slot : slots_) {
      const float* value = slot.value.f32();
      float* average = slot.average.f32();
      ForSegments(context_, slot.value.shape.numel(),
                  [=](std::int64_t first, std::int64_t n, std::int64_t, int) {
                    for (std::int64_t i = first; i < first + n; ++i)
                      average[i] = Averaged(s, average[i], value[i]);
                  });
    }
  }

 private:
  Context context_;
  std::vector<AverageSlot> slots_;
};

}  // namespace

std::unique_ptr<AverageOp> MakeAverageOp(const Context& c, std::vector<AverageSlot> slots) {
  return std::make_unique<CpuAverage>(c, std::move(slots));
}

}  // namespace ada::backend::cpu
