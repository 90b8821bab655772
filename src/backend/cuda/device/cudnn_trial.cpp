// See cudnn_plans.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cuda/device/cudnn_plans.h"
#include "backend/cuda/device/device_stream.h"
#include "backend/cuda/kernels/tensor_span.h"

namespace ada::backend::cuda {
namespace {

// A number whose code is twice this byte: 279 in fp16 (0x5c5c), 1.2e30 in bf16 (0x7171); with the
// signs of kSigns it is negative. One product of both lies below the range of the format.
constexpr int kLargeFp16 = 0x5c, kLargeBf16 = 0x71, kSigns = 0x80;
// As a code's bytes a number whose sums of products stay within all ranges: 0.53 in fp16, 4.4e-5 in
// bf16, 1 in fp8_e4m3, 0.5 in fp8_e5m2.
constexpr int kModest = 0x38;
constexpr std::size_t kMostLookedAt = 32768;  // bytes of the output

std::array<std::size_t, 3> SizesOf(const MatmulRequest& r) {
  const MatmulShapes shapes = ShapesOf(r);
  const auto bytes = [](const Shape& shape, std::size_t each) {
    return static_cast<std::size_t>(shape.numel()) * each;
  };
  return {bytes(shapes.first, OperandBytes(r)), bytes(shapes.second, OperandBytes(r)),
          bytes(shapes.out, BytesOf(r.out))};
}

}  // namespace

PlanTrial::PlanTrial(const CudnnContext& context, const MatmulRequest& request,
                     cudnn_frontend::graph::Graph& graph)
    : context_(context),
      stored_(request.out),
      graph_(graph),
      bytes_(SizesOf(request)),
      blocks_{Allocate(bytes_[0]), Allocate(bytes_[1]), Allocate(bytes_[2])},
      workspace_(Allocate(static_cast<std::size_t>(
          std::max(graph.get_autotune_workspace_size(), graph.get_workspace_size())))),
      tensors_{{kFirst, blocks_[0].get()}, {kSecond, blocks_[1].get()}, {kOut, blocks_[2].get()}} {
  if (HasEpilogue(request)) tensors_[kScale] = const_cast<float*>(context.one);
}

PlanTrial::Block PlanTrial::Allocate(std::size_t bytes) const {
  return {context_.stream.Allocate(bytes), Free{&context_.stream}};
}

void PlanTrial::Fill(const Block& block, int byte, std::size_t bytes) const {
  CheckCuda(cudaMemsetAsync(block.get(), byte, bytes, context_.stream.handle()), "filling memory");
}

bool PlanTrial::KeepFastest() {
  const bool good = graph_.autotune(context_.handle, tensors_, workspace_.get()).is_good();
  context_.stream.Synchronize();
  return good;
}

// Waits for the device: a trial is part of planning.
std::vector<float> PlanTrial::Run() {
  Fill(blocks_[2], 0, bytes_[2]);
  if (graph_.execute(context_.handle, tensors_, workspace_.get()).is_bad()) return {};
  std::vector<std::byte> stored(std::min(bytes_[2], kMostLookedAt));
  context_.stream.CopyToHost(stored.data(), blocks_[2].get(), stored.size());
  context_.stream.Synchronize();
  const TensorSpan span{stored.data(), stored_};
  std::vector<float> out(stored.size() / BytesOf(stored_));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = Load(span, static_cast<std::int64_t>(i));
  return out;
}

// A single product is already below the range of the format, so every sum is.
bool PlanTrial::KeepsOverflow() {
  const bool fp16 = stored_ == Storage::kF16;
  const int large = fp16 ? kLargeFp16 : kLargeBf16;
  Fill(blocks_[0], large, bytes_[0]);
  Fill(blocks_[1], large | kSigns, bytes_[1]);
  const std::vector<float> out = Run();
  return std::find(out.begin(), out.end(), -INFINITY) != out.end();
}

// Twice a sum is exact; an output of zeros alone would prove nothing.
bool PlanTrial::Multiplies() {
  for (const std::size_t operand : {0, 1}) Fill(blocks_[operand], kModest, bytes_[operand]);
  const std::vector<float> once = Run();
  tensors_[kScale] = const_cast<float*>(context_.two);
  const std::vector<float> twice = Run();
  bool any = false;
  for (std::size_t i = 0; i < once.size() && i < twice.size(); ++i) {
    if (twice[i] != 2 * once[i]) return false;
    any = any || once[i] != 0;
  }
  return any;
}

}  // namespace ada::backend::cuda
