// See matmul_plans.h.
#include "backend/cuda/matmul/matmul_plans.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/side_stream.h"
#include "backend/decisions.h"
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
  const std::int64_t row = request_.geometry.x.c;
  ForEach(context.stream, values / row, PadChannels{in, copy, channels_, row});
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

namespace {

// In which storage products may read a tensor as it is stored: a 16-bit format in fp32 storage may
// have a per-tensor scale, and then its values are not the format's.
NumberFormat ReadableFormat(const NumberFormat& format, Storage storage) {
  return storage == Storage::kF32 ? kFp32 : format;
}
NumberFormat ReadableFormat(const Tensor& tensor) {
  return ReadableFormat(tensor.format, tensor.storage);
}

// Whether converting to the storage of `operands` is all that rounding to this tensor is. A format
// that saturates is not kFp16 or kBf16.
bool RoundsPlainly(const Tensor& tensor, const RoundingStyle& style, Storage operands) {
  return tensor.storage == operands && TellsAmax(tensor, style);
}

}  // namespace

MatmulPlans::MatmulPlans(const Context& context, const MatmulSpec& spec,
                         const MatmulGeometry& geometry, bool transposed, WeightCopies& weights,
                         const OperandCopies& operands, bool alpha_first)
    : context_(context),
      spec_(spec),
      geometry_(geometry),
      transposed_(transposed),
      weights_(weights),
      operands_(operands),
      alpha_first_(alpha_first) {
  const int rows = static_cast<int>(spec.x.shape.n);
  For(MatmulKind::kForward, rows, true);
  if (spec.dy) For(MatmulKind::kWeights, rows);
  if (spec.dx) For(MatmulKind::kData, rows, true);
}

// A call that counts wants fp32 sums: it has a plan of its own only where the usual one rounds.
const PlannedMatmul& MatmulPlans::For(MatmulKind kind, int rows, bool rounded) {
  Pair& pair = plans_[{kind, rows}];
  if (!pair.plain) pair.plain = Make(kind, rows, false);
  if (rounded || !pair.plain.rounded()) return pair.plain;
  if (!pair.sums) pair.sums = Make(kind, rows, true);
  return pair.sums;
}

MatmulKind MatmulPlans::AskedFor(MatmulKind kind) const {
  if (!transposed_ || kind == MatmulKind::kWeights) return kind;
  return kind == MatmulKind::kForward ? MatmulKind::kData : MatmulKind::kForward;
}

// A plan may round where nothing has to be seen of the sums, and multiply by alpha where the rule
// looks at neither dx nor its moments.
PlanOutput MatmulPlans::OutputOf(MatmulKind kind, Storage operands) const {
  if (kind == MatmulKind::kForward)
    return spec_.b || !RoundsPlainly(spec_.y, spec_.y_style, operands) ? PlanOutput::kSums
                                                                       : PlanOutput::kRounded;
  if (kind == MatmulKind::kWeights) return PlanOutput::kSums;
  const Gradient& dx = spec_.dx;
  const scaling::LayerMethod method = context_.Host(spec_.scaler)->rule.method;
  if (method == scaling::LayerMethod::kExactRange || alpha_first_ || dx.moments != nullptr ||
      !RoundsPlainly(dx.tensor, dx.style, operands))
    return PlanOutput::kSums;
  // Without a rule of its own alpha is 1.
  return method == scaling::LayerMethod::kPass ? PlanOutput::kRounded
                                               : PlanOutput::kScaledAndRounded;
}

// fp8 needs 16 bits; in fp32 lie those with a per-tensor scale.
MatmulPlans::Coded MatmulPlans::CodedOf(const Tensor& tensor,
                                        const scaling::TensorScaler* per_tensor_scale) {
  return {Fp8Of(tensor.format), tensor.storage != Storage::kF32 || per_tensor_scale != nullptr,
          per_tensor_scale};
}

// alpha * dy is rounded without dy's scale.
MatmulPlans::Coded MatmulPlans::CodedDy(MatmulKind kind) const {
  const bool plain = kind == MatmulKind::kWeights || !alpha_first_;
  return CodedOf(spec_.dy.tensor, plain ? spec_.dy.style.per_tensor_scale : nullptr);
}

// An operand in blocks has no codes of its own.
MatmulPlans::Coded MatmulPlans::CodedOperand(Operand operand, const Coded& stored) const {
  const OperandRounding& rounding = spec_.operands[IndexOf(operand)];
  if (!rounding.rounds) return stored;
  if (rounding.block) return {};
  return {Fp8Of(rounding.format), true, rounding.style.per_tensor_scale};
}

std::array<MatmulPlans::Coded, 2> MatmulPlans::CodedOperands(MatmulKind kind) const {
  if (!context_.options.fp8_hardware) return {};
  const Coded x = CodedOf(spec_.x, spec_.x_per_tensor_scale), dy = CodedDy(kind),
              w{Fp8Of(spec_.w_format), true, spec_.w_style.per_tensor_scale};
  const std::array<Operand, 2> operands = BothOperandsOf(kind);
  std::array<Coded, 2> both = {CodedOperand(operands[0], kind == MatmulKind::kData ? dy : x),
                               CodedOperand(operands[1], kind == MatmulKind::kWeights ? dy : w)};
  if (transposed_ && kind == MatmulKind::kWeights) std::swap(both[0], both[1]);
  if (both[0].format == Fp8::kNone || both[1].format == Fp8::kNone) return {};
  if (both[0].known && both[1].known) return both;
  context_.diagnostic_lines.Diagnose(
      "layer " + spec_.layer + ": the " + NameOf(kind) +
      " of fp8 operands is emulated: the scale of one of them is not known");
  return {};
}

// Chooses the storage of operands, what the plan does with its sums, and codes where they are
// wanted; PlannedMatmul then takes the best that the library can do.
PlannedMatmul MatmulPlans::Make(MatmulKind kind, int rows, bool sums) const {
  const NumberFormat x = ReadableFormat(spec_.x), dy = ReadableFormat(spec_.dy.tensor);
  const NumberFormat w = ReadableFormat(spec_.w_format, weights_.storage());
  Storage operands = kind == MatmulKind::kForward ? OperandsOf(x, w)
                     : kind == MatmulKind::kData  ? OperandsOf(dy, w)
                                                  : OperandsOf(x, dy);
  const bool own = Rounds(spec_, kind);
  if (own) operands = CarrierOf(spec_, kind);
  const std::array<Coded, 2> coded = CodedOperands(kind);
  // What a library does not do on 8-bit codes it does exactly on fp16, which holds them.
  if (!own && coded[0].format != Fp8::kNone && coded[0].per_tensor_scale == nullptr &&
      coded[1].per_tensor_scale == nullptr)
    operands = Storage::kF16;
  const bool rounds = !sums && context_.stream.switches().round;
  const PlanOutput output = rounds ? OutputOf(kind, operands) : PlanOutput::kSums;
  const auto scale = [](const Coded& c) {
    return c.per_tensor_scale == nullptr ? nullptr : &c.per_tensor_scale->scale;
  };
  PlannedMatmul matmul(ContextOf(kind), spec_.layer,
                       RequestsFor(AskedFor(kind), geometry_, rows, operands, output,
                                   {coded[0].format, coded[1].format}),
                       {scale(coded[0]), scale(coded[1])});
  if (kind != MatmulKind::kWeights)
    weights_.Packed(matmul.request().operands, BothOperandsOf(kind)[1]);
  ReserveScratch(kind, matmul);
  return matmul;
}

// Weight gradients are made on the side stream.
const Context& MatmulPlans::ContextOf(MatmulKind kind) const {
  return kind == MatmulKind::kWeights ? context_.side_stream.context() : context_;
}

std::size_t MatmulPlans::scaled_bytes() const {
  return alpha_first_ ? Aligned(spec_.dy.tensor.bytes()) : 0;
}

// Scratch memory is shared by the ops of a stream and only grows: every plan reserves the most that
// it takes.
void MatmulPlans::ReserveScratch(MatmulKind kind, const PlannedMatmul& matmul) const {
  const MatmulRequest& request = matmul.request();
  const BatchOperands& copies = operands_.Of(kind);
  const auto taken = [&](std::size_t operand, Storage stored) {
    return spec_.operands[IndexOf(BothOperandsOf(kind)[operand])].rounds ? CarrierOf(spec_, kind)
                                                                         : stored;
  };
  const Storage first =
      taken(0, kind == MatmulKind::kData ? spec_.dy.tensor.storage : spec_.x.storage);
  const auto reserve = [&](Storage one, Storage other, bool apart, std::size_t more) {
    const std::size_t plan = matmul.scratch_bytes(one, other, apart) + more;
    ContextOf(kind).scratch.Reserve(copies.carrier_bytes() + std::max(copies.work_bytes(), plan));
  };
  const auto sums = [&](const Tensor& tensor, const TensorStats* stats) {
    return tensor.storage != Storage::kF32 && (!matmul.rounded() || stats != nullptr);
  };
  switch (kind) {
    case MatmulKind::kForward:
      return reserve(first, request.operands, sums(spec_.y, spec_.y_stats), 0);
    case MatmulKind::kWeights: {
      const Storage second = taken(1, spec_.dy.tensor.storage);
      return transposed_ ? reserve(second, first, true, 0) : reserve(first, second, true, 0);
    }
    case MatmulKind::kData:
      return reserve(first, request.operands, sums(spec_.dx.tensor, spec_.dx.stats),
                     scaled_bytes());
  }
}

}  // namespace ada::backend::cuda
