// The factory of the CPU backend's ops and the owner of its memory.
#include "backend/cpu/cpu_backend.h"

#include <cstring>
#include <map>
#include <new>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cpu/matmul/matmul_op.h"
#include "backend/cpu/matmul/plan/kernel_chunks.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/thread_pool.h"
#include "backend/values/all.h"
#include "error.h"
#include "io/machine.h"
#include "io/memory.h"
#include "io/text.h"

namespace ada::backend::cpu {
namespace {

MatmulGeometry ShapesOf(const MatmulSpec& spec) {
  MatmulGeometry g;
  g.x = spec.x.shape, g.y = spec.y.shape, g.w = spec.w.shape;
  g.bias = static_cast<bool>(spec.b);
  g.training = static_cast<bool>(spec.dy);
  g.data_gradient = static_cast<bool>(spec.dx);
  return g;
}
template <class Spec>
MatmulGeometry GeometryOfWindow(const Spec& spec) {
  MatmulGeometry g = ShapesOf(spec);
  g.stride = spec.stride, g.padding = spec.padding, g.dilation = spec.dilation;
  g.groups = spec.groups;
  return g;
}
MatmulGeometry GeometryOf(const Conv2dSpec& spec) { return GeometryOfWindow(spec); }
MatmulGeometry GeometryOf(const ConvTranspose2dSpec& spec) {
  MatmulGeometry g = GeometryOfWindow(spec);
  g.transposed = true;
  return g;
}
// A linear layer over a sequence is computed as a 1x1 convolution of one row of pixels, since
// blocks of output positions lie along rows.
MatmulGeometry GeometryOf(const LinearSpec& spec) {
  MatmulGeometry g = ShapesOf(spec);
  if (g.y.h * g.y.w > 1) {
    g.x = {g.x.n, 1, g.x.h * g.x.w, g.x.c};
    g.y = {g.y.n, 1, g.y.h * g.y.w, g.y.c};
    return g;
  }
  g.linear = true;
  if (g.x.c == 1) {  // one channel lies in memory as it is flattened
    g.x = {g.x.n, 1, 1, g.x.h * g.x.w};
    g.w = {g.w.n, 1, 1, g.w.h * g.w.w};
  }
  return g;
}

std::vector<MatmulKernels> WithoutWinograd(std::vector<MatmulKernels> tables) {
  for (MatmulKernels& table : tables) table.winograd = nullptr;
  return tables;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, const Communicators& shared)
      : kernels_(SelectKernels()),
        tiles_(SelectMatmulKernels()),
        direct_kernels_(WithoutWinograd(tiles_)),
        pool_(threads > 0 ? threads : UsableCores()),
        scratch_(pool_.size()),
        context_{pool_, kernels_, scratch_, shared} {}
  ~CpuBackend() override {
    for (const auto& [block, bytes] : memory_) FreePages(block, bytes);
  }

  std::string Describe() const override {
    const int n = pool_.size();
    return "cpu (" + OnednnVersion() + ", " + InstructionSet() + ", " + std::to_string(n) +
           (n == 1 ? " thread)" : " threads)");
  }
  std::string InstructionSet() const override {
    const bool own = tiles_.empty() || tiles_[0].on_fp32();
    return (own                         ? kernels_.name
            : tiles_[0].on_bf16_split() ? "amx"
                                        : "avx512bf16") +
           NameOfMatmuls();
  }
  std::vector<std::string> Diagnostics() const override {
    std::vector<std::string> all = diagnostics_;
    std::string ways;
    for (const auto& [way, layers] : ways_)
      ways += (ways.empty() ? "" : ", ") + std::to_string(layers) + " " + way;
    if (!ways.empty()) all.push_back("products of layers: " + ways);
    return all;
  }

  std::byte* Allocate(std::size_t bytes) override {
    try {
      memory_.reserve(memory_.size() + 1);
      memory_.emplace_back(AllocatePages(bytes, PageKind::kHuge), bytes);
    } catch (const std::bad_alloc&) {
      throw DeviceError("cannot allocate " + HumanBytes(bytes) + " of memory on the CPU (" +
                        HumanBytes(allocated_) +
                        " in use); a smaller data.batch_size or train.accumulate helps");
    }
    allocated_ += bytes;
    return memory_.back().first;
  }
  std::size_t allocated_bytes() const override { return allocated_ + scratch_.bytes(); }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Synchronize() override {}
  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    ADA_CHECK(rows >= 0 && rows <= tensor.shape.n);
    kernels_.widen(At(tensor, 0), out, rows * tensor.shape.per_image());
  }
  int BlockImages(const Shape& shape) const override { return backend::BlockImages(shape); }

  std::unique_ptr<InputOp> MakeInput(const InputSpec& s) override {
    return MakeInputOp(context_, s);
  }
  std::unique_ptr<Op> Make(const OpSpec& spec) override {
    return std::visit(
        [&](const auto& s) {
          using Spec = std::decay_t<decltype(s)>;
          if constexpr (std::is_base_of_v<MatmulSpec, Spec>)
            return MakeMatmul(s, GeometryOf(s));
          else if constexpr (HasValues<Spec>)
            return MakeValueOp(context_, spec);
          else
            return MakeOp(context_, s);
        },
        spec);
  }
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& spec) override {
    return std::visit([this](const auto& s) { return MakeLossOp(context_, s); }, spec);
  }
  std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) override {
    return MakeUpdateOp(context_, rule, std::move(slots), std::move(watched));
  }
  std::unique_ptr<AverageOp> MakeAverage(std::vector<AverageSlot> slots) override {
    return MakeAverageOp(context_, std::move(slots));
  }

 private:
  std::unique_ptr<Op> MakeMatmul(const MatmulSpec& spec, const MatmulGeometry& geometry) {
    if (spec.recomputed &&
        (AnyRounds(spec.operands) || AnyAccumulates(spec.sums) || AnyJudged(spec.sums)))
      return nullptr;
    MatmulSpec operand_spec = AsOperands(spec);
    // Matmuls with rounded operands use exact products, so that all kernels give the same result.
    const auto& all = AnyRounds(spec.operands) ? direct_kernels_ : tiles_;
    std::string reason;
    for (const MatmulKernels& kernels : all) {
      const char* refused = WhyNoKernels(kernels, operand_spec, geometry);
      if (refused == nullptr) {
        if (geometry.training) ++ways_[WayOfMatmuls(kernels, geometry)];
        return std::make_unique<MatmulOp>(context_, &kernels, spec, std::move(operand_spec),
                                          geometry);
      }
      reason = refused;
    }
    if (geometry.training) ++ways_["on oneDNN in fp32"];
    if (!reason.empty() && geometry.training)
      diagnostics_.push_back("layer " + spec.layer + ": on oneDNN in fp32: " + reason);
    return std::make_unique<MatmulOp>(context_, nullptr, spec, std::move(operand_spec), geometry);
  }

  const Kernels& kernels_;
  const std::vector<MatmulKernels> tiles_;  // none: oneDNN computes everything
  const std::vector<MatmulKernels> direct_kernels_;
  ThreadPool pool_;
  Scratch scratch_;
  Context context_;
  std::vector<std::string> diagnostics_;
  std::map<std::string, int> ways_;  // of computing a layer -> layers
  std::vector<std::pair<std::byte*, std::size_t>> memory_;
  std::size_t allocated_ = 0;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int threads, const Communicators& shared) {
  return std::make_unique<CpuBackend>(threads, shared);
}

std::string LibraryVersion() { return OnednnVersion(); }

}  // namespace ada::backend::cpu
