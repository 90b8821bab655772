// The factory of compared ops; see compare_backend.h.
#include "backend/compare/compare_backend.h"

#include <utility>
#include <variant>

#include "backend/compare/compared_op.h"
#include "core/error.h"

namespace ada::backend {
namespace compare {

std::string ToString(const Difference& d, const std::string& first_name,
                     const std::string& second_name) {
  std::string text = "call " + std::to_string(d.call) + ", ";
  text += d.layer.empty() ? d.op : "layer " + d.layer + " (" + d.op + ")";
  text += ", " + d.phase;
  if (!d.tensor.empty()) text += ", " + d.tensor;
  text += ", " + d.what + ": " + first_name + " " + NumberText(d.first) + ", " + second_name + " " +
          NumberText(d.second);
  return text + " (allowed: " + d.allowed + ")";
}

namespace {

class CompareBackend final : public Backend {
 public:
  CompareBackend(std::unique_ptr<Backend> first, std::unique_ptr<Backend> second,
                 const CompareOptions& options)
      : options_(options),
        first_(std::move(first)),
        second_(std::move(second)),
        addresses_(*first_, *second_),
        comparison_{addresses_, options.slack, options.report, options.fp8_sums} {
    if (comparison_.report) return;
    comparison_.report = [this](const Difference& difference) {
      throw DeviceError("compare: " +
                        ToString(difference, options_.first_name, options_.second_name));
    };
  }

  std::string Describe() const override {
    return "compare " + options_.first_name + " with " + options_.second_name + ": " +
           first_->Describe() + "; " + second_->Describe();
  }
  std::string InstructionSet() const override { return first_->InstructionSet(); }
  std::vector<std::string> Diagnostics() const override {
    std::vector<std::string> all = first_->Diagnostics();
    for (const std::string& line : second_->Diagnostics()) all.push_back(line);
    return all;
  }
  std::vector<std::string> Warnings() const override {
    std::vector<std::string> all = first_->Warnings();
    for (const std::string& line : second_->Warnings()) all.push_back(line);
    return all;
  }

  std::byte* Allocate(std::size_t bytes) override { return addresses_.Allocate(bytes); }
  std::size_t allocated_bytes() const override {
    return first_->allocated_bytes() + second_->allocated_bytes();
  }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    addresses_.Upload(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    first_->Download(to, from, bytes);
  }
  void Synchronize() override { first_->Synchronize(), second_->Synchronize(); }
  SharedMemory AllocateShared(std::size_t bytes) override {
    return addresses_.AllocateShared(bytes);
  }
  void Fetch(const SharedMemory& memory) override { first_->Fetch(memory); }
  void Send(const SharedMemory& memory) override { addresses_.Send(memory); }
  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    first_->Read(tensor, rows, out);
  }
  int BlockImages(const Shape& shape) const override {
    const int images = first_->BlockImages(shape);
    if (second_->BlockImages(shape) != images)
      throw DeviceError("compare: the two backends cut a tensor of " + ToString(shape) +
                        " into blocks of " + std::to_string(images) + " and " +
                        std::to_string(second_->BlockImages(shape)) + " images");
    return images;
  }

  // Channel moments are what batch norms take themselves to the same bits: they are left to them.
  // Largest magnitudes are compared after the op that rounds, which is to note them itself.
  std::unique_ptr<Op> Make(const OpSpec& spec) override {
    return std::visit(
        [this](auto s) -> std::unique_ptr<Op> {
          if constexpr (requires { s.recomputed; })
            if (s.recomputed) return nullptr;
          if constexpr (requires { s.y_moments; }) s.y_moments = {};
          if constexpr (requires { s.x_moments; }) s.x_moments = {}, s.x_stats = nullptr;
          if constexpr (requires { s.y_amax_deferred; })
            s.y_amax_deferred = s.dx.amax_deferred = false;
          if constexpr (requires { s.dy.amax_deferred; }) s.dy.amax_deferred = false;
          if constexpr (requires { s.scaler; }) addresses_.ShowOnHost(s.scaler);
          if constexpr (requires { s.scalers; })
            for (const scaling::LayerScaler* scaler : s.scalers) addresses_.ShowOnHost(scaler);
          return MakePair(s, first_->Make(s), second_->Make(addresses_.ForSecond(s)));
        },
        spec);
  }
  std::unique_ptr<InputOp> MakeInput(const InputSpec& s) override {
    return MakePair(s, first_->MakeInput(s), second_->MakeInput(addresses_.ForSecond(s)));
  }
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& s) override {
    return std::visit(
        [this](const auto& spec) {
          return MakePair(spec, first_->MakeLoss(spec),
                          second_->MakeLoss(addresses_.ForSecond(spec)));
        },
        s);
  }
  std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) override {
    std::vector<UpdateSlot> other;
    for (const UpdateSlot& slot : slots) other.push_back(addresses_.ForSecond(slot));
    auto first = first_->MakeUpdate(rule, slots, watched);
    for (WatchedRounding& w : watched) w = addresses_.ForSecond(w);
    auto second = second_->MakeUpdate(rule, std::move(other), std::move(watched));
    return CompareUpdate(comparison_, std::move(first), std::move(second), rule, std::move(slots));
  }
  std::unique_ptr<AverageOp> MakeAverage(std::vector<AverageSlot> slots) override {
    std::vector<AverageSlot> other;
    for (const AverageSlot& slot : slots) other.push_back(addresses_.ForSecond(slot));
    auto first = first_->MakeAverage(slots), second = second_->MakeAverage(std::move(other));
    return CompareAverage(comparison_, std::move(first), std::move(second), std::move(slots));
  }

 private:
  template <class Spec, class OpType>
  std::unique_ptr<OpType> MakePair(const Spec& spec, std::unique_ptr<OpType> first,
                                   std::unique_ptr<OpType> second) {
    if (!first || !second) return nullptr;
    return CompareOp(comparison_,
                     OpPair<OpType>{spec.layer, Spec::kKind, std::move(first), std::move(second)},
                     spec);
  }

  const CompareOptions options_;
  std::unique_ptr<Backend> first_, second_;
  AddressMap addresses_;
  Comparison comparison_;
};

}  // namespace
}  // namespace compare

std::unique_ptr<Backend> MakeCompareBackend(std::unique_ptr<Backend> first,
                                            std::unique_ptr<Backend> second,
                                            const CompareOptions& options) {
  return std::make_unique<compare::CompareBackend>(std::move(first), std::move(second), options);
}

}  // namespace ada::backend
