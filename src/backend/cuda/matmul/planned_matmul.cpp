// See planned_matmul.h.
#include "backend/cuda/matmul/planned_matmul.h"

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/launch.h"
#include "error.h"

namespace ada::backend::cuda {

// Diagnostics name what is used instead of the first request; a widening to fp32 also gives a
// warning, because it is slow.
PlannedMatmul::PlannedMatmul(const Context& context, const std::string& layer,
                             const std::vector<MatmulRequest>& requests,
                             const PerTensorScales& scales)
    : channels_(requests.front().geometry.x.c), scales_(scales) {
  for (const MatmulRequest& request : requests) {
    matmul_ = context.matmuls.Get(request);
    request_ = request;
    if (matmul_) break;
  }
  for (const std::string& line : context.matmuls.TakeDiagnostics())
    context.diagnostic_lines.Diagnose(line);
  if (!matmul_)
    throw DeviceError("layer " + layer + ": the library has no plan for the " +
                      Describe(requests.back()) + " (" + KeyOf(requests.back()) + ")");
  if (request_ == requests.front()) return;
  context.diagnostic_lines.Diagnose("layer " + layer + ": no plan for the " +
                                    Describe(requests.front()) + ", but for the " +
                                    Describe(request_, requests.front()));
  if (requests.front().operands != Storage::kF32 && request_.operands == Storage::kF32)
    context.diagnostic_lines.Widened(layer, NameOf(request_.kind));
}

std::size_t PlannedMatmul::WidenedBytes(Storage from, std::int64_t values) const {
  return from == request_.operands ? 0 : Aligned(static_cast<std::size_t>(values) * 4);
}

std::size_t PlannedMatmul::scratch_bytes(Storage first, Storage second, bool apart) const {
  const MatmulShapes shapes = ShapesOf(request_);
  const std::size_t copied =
      added_channels() > 0
          ? Aligned(static_cast<std::size_t>(shapes.first.numel()) * OperandBytes(request_))
          : 0;
  const std::size_t operands =
      HasCodes(request_)
          ? Aligned(static_cast<std::size_t>(shapes.first.numel())) +
                Aligned(static_cast<std::size_t>(shapes.second.numel())) + Aligned(sizeof(float))
          : WidenedBytes(first, shapes.first.numel()) + WidenedBytes(second, shapes.second.numel());
  return copied + operands +
         (apart ? Aligned(static_cast<std::size_t>(shapes.out.numel()) * 4) : 0);
}

// Operands in another storage than the plan's are only ever widened: narrowing would round.
const void* PlannedMatmul::Operand(const Context& context, const TensorSpan& in,
                                   std::int64_t values, std::byte** scratch) const {
  if (in.storage == request_.operands) return in.data;
  ADA_CHECK(request_.operands == Storage::kF32);
  const TensorSpan wide{*scratch, Storage::kF32};
  *scratch += WidenedBytes(in.storage, values);
  ForEach(context.stream, (values + 3) / 4, WidenVec4{in, wide, values});
  return wide.data;
}

const void* PlannedMatmul::Padded(const Context& context, const TensorSpan& in,
                                  std::byte** scratch) const {
  ADA_CHECK(in.storage == request_.operands);
  const std::int64_t values = ShapesOf(request_).first.numel();
  const TensorSpan copy{*scratch, in.storage};
  *scratch += Aligned(static_cast<std::size_t>(values) * BytesOf(in.storage));
  ForEach(context.stream, values, PadChannels{in, copy, channels_, request_.geometry.x.c});
  return copy.data;
}

const void* PlannedMatmul::Codes(const Context& context, int operand, const TensorSpan& in,
                                 std::byte** scratch) const {
  const MatmulShapes shapes = ShapesOf(request_);
  const std::int64_t values = (operand == 0 ? shapes.first : shapes.second).numel();
  const Fp8 format = request_.codes[static_cast<std::size_t>(operand)];
  auto* codes = reinterpret_cast<std::uint8_t*>(*scratch);
  *scratch += Aligned(static_cast<std::size_t>(values));
  ForEach(context.stream, (values + 3) / 4,
          PackFp8{in, operand == 0 ? scales_.first : scales_.second,
                  GridOf(format == Fp8::kE4M3 ? kFp8E4M3 : kFp8E5M2), format, codes, values});
  return codes;
}

// Codes hold values times their per-tensor scales; one factor brings the sums back.
const float* PlannedMatmul::Factor(const Context& context, std::byte** scratch) const {
  if (scales_.first == nullptr && scales_.second == nullptr) return nullptr;
  auto* factor = reinterpret_cast<float*>(*scratch);
  *scratch += Aligned(sizeof(float));
  ForEach(context.stream, 1, UndoScales{scales_.first, scales_.second, factor});
  return factor;
}

// Scratch memory is taken from the front: operands first, then the sums.
float* PlannedMatmul::Run(const Context& context, const TensorSpan& first, const TensorSpan& second,
                          const TensorSpan& out, const float* scale, std::byte* scratch) const {
  MatmulArguments arguments;
  if (request_.scale) arguments.scale = scale;
  if (HasCodes(request_)) {
    arguments.first = Codes(context, 0, first, &scratch);
    arguments.second = Codes(context, 1, second, &scratch);
    arguments.scale = Factor(context, &scratch);
  } else {
    const MatmulShapes shapes = ShapesOf(request_);
    arguments.first = added_channels() > 0
                          ? Padded(context, first, &scratch)
                          : Operand(context, first, shapes.first.numel(), &scratch);
    arguments.second = Operand(context, second, shapes.second.numel(), &scratch);
  }
  const bool in_place = rounded() || (out.data != nullptr && out.storage == Storage::kF32);
  arguments.out = in_place ? out.data : scratch;
  matmul_->Run(arguments);
  return rounded() ? nullptr : static_cast<float*>(arguments.out);
}

}  // namespace ada::backend::cuda
