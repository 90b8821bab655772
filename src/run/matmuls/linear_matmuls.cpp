// One LinearSpec on a backend of its own: as graph/op_maker.cpp and layers/matmuls.cpp make
// it for a layer of a network, with pointers to what the product takes of each operand.
#include "run/matmuls/linear_matmuls.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/specs.h"
#include "error.h"
#include "graph/graph.h"
#include "graph/network/tensor_storage.h"
#include "graph/rounding_styles.h"
#include "number/random.h"
#include "number/tensor.h"
#include "record/dumped_operands.h"

namespace ada::run {
namespace {

// The memory, the roundings and the op of one layer.
class LinearLayer {
 public:
  LinearLayer(const LinearSetup& setup, const LinearTensors& stored);
  LinearMatmuls Run();

 private:
  Tensor Allocate(std::int64_t rows, std::int64_t columns, const NumberFormat& format) const;
  Tensor Upload(const StoredMatrix& matrix, const NumberFormat& format) const;
  StoredMatrix Read(const Tensor& tensor) const;
  void AddOperands();
  void AddSums();
  void AddGradients(const graph::LayerFormats& formats);
  std::vector<float> BeforeRounding(Operand operand, const backend::OperandRounding& how) const;
  OperandMatrix Captured(Operand operand);
  const StoredMatrix& StoredOf(Operand operand) const;
  backend::RoundingStyle StyleOf(const char* tensor, const NumberFormat& format) {
    return styles_.Of(setup_.layer, tensor, {format, StorageFor(format), false});
  }

  const LinearSetup& setup_;
  const LinearTensors& stored_;
  std::unique_ptr<backend::Backend> backend_;
  graph::Precision precision_;
  graph::GraphSpec graph_spec_;
  graph::SharedArena arena_;
  graph::RoundingStyles styles_;
  backend::LinearSpec spec_;
  backend::Pass pass_;
  std::array<backend::CapturedOperand, kOperands> captured_;
  std::array<std::vector<float>, kOperands> captured_values_;
  std::array<TensorStats, kOperands> stats_;
  std::array<BlockCounts, kOperands> blocks_;
  std::array<MatmulSums, scaling::kLayerMatmuls> sums_;
};

graph::GraphSpec SpecOfStyles(const graph::Precision& precision, bool stochastic) {
  graph::GraphSpec spec;
  spec.precision = precision;
  spec.precision.stochastic = precision.stochastic && stochastic;
  spec.training = true;
  spec.counted = {"operands"};
  return spec;
}

LinearLayer::LinearLayer(const LinearSetup& setup, const LinearTensors& stored)
    : setup_(setup),
      stored_(stored),
      backend_(backend::cpu::MakeCpuBackend(setup.threads)),
      precision_(graph::ResolvePrecision(setup.precision, /*policy_owns_gradients=*/false)),
      graph_spec_(SpecOfStyles(precision_, setup.stochastic)),
      arena_(*backend_, 1 << 16),
      styles_(graph_spec_, nullptr, arena_, arena_, arena_) {
  const graph::LayerFormats formats = precision_.formats_of(setup.layer);
  spec_.layer = setup.layer;
  spec_.x = Upload(stored.x, stored.x.format);
  spec_.w = Upload(stored.w, kFp32);
  spec_.w.shape = {stored.w.rows, 1, 1, stored.w.columns};
  spec_.w_format = stored.w.format;
  const NumberFormat y = formats.activations;
  spec_.y = Allocate(stored.x.rows, stored.w.rows, y);
  spec_.y_style = StyleOf("y", y);
  if (stored.dy) AddGradients(formats);
  AddOperands();
  AddSums();
  pass_.rows = static_cast<int>(stored.x.rows);
  pass_.count = true;
  pass_.seed = setup.seed;
  pass_.draw = 1;
}

Tensor LinearLayer::Allocate(std::int64_t rows, std::int64_t columns,
                             const NumberFormat& format) const {
  Tensor tensor;
  tensor.shape = {rows, 1, 1, columns};
  tensor.format = format;
  tensor.storage = StorageFor(format);
  tensor.data = backend_->Allocate(tensor.bytes());
  return tensor;
}

Tensor LinearLayer::Upload(const StoredMatrix& matrix, const NumberFormat& format) const {
  const Tensor tensor = Allocate(matrix.rows, matrix.columns, format);
  if (tensor.storage == Storage::kF32) {
    backend_->Upload(tensor.data, matrix.values.data(), tensor.bytes());
    return tensor;
  }
  std::vector<std::uint16_t> codes(matrix.values.size());
  std::transform(matrix.values.begin(), matrix.values.end(), codes.begin(),
                 tensor.storage == Storage::kF16 ? EncodeFp16 : EncodeBf16);
  backend_->Upload(tensor.data, codes.data(), tensor.bytes());
  return tensor;
}

StoredMatrix LinearLayer::Read(const Tensor& tensor) const {
  StoredMatrix matrix{{}, tensor.shape.n, tensor.shape.c, tensor.format};
  matrix.values.resize(static_cast<std::size_t>(tensor.shape.numel()));
  backend_->Read(tensor, tensor.shape.n, matrix.values.data());
  return matrix;
}

// Gradients carry a scale of 1, and alpha is that of a layer without a rule.
void LinearLayer::AddGradients(const graph::LayerFormats& formats) {
  spec_.dy.tensor = Upload(stored_.dy, stored_.dy.format);
  spec_.dy.scale = arena_.Add<float>().backend;
  *spec_.dy.scale = 1;
  const NumberFormat dx = formats.gradients, dw = formats.weight_gradients;
  spec_.dx.tensor = Allocate(stored_.x.rows, stored_.x.columns, dx);
  spec_.dx.scale = arena_.Add<float>().backend;
  spec_.dx.style = StyleOf("dx", dx);
  spec_.dw = Allocate(stored_.w.rows, stored_.w.columns, kFp32);
  spec_.dw_format = dw;
  spec_.dw_style = StyleOf("dw", dw);
  spec_.scaler = arena_.Add<scaling::LayerScaler>().backend;
}

void LinearLayer::AddOperands() {
  const graph::LayerOperands operands = precision_.operands_of(setup_.layer, /*spared=*/false);
  for (std::size_t i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    backend::OperandRounding& how = spec_.operands[i];
    how = styles_.OperandOf(setup_.layer, operand, operands);
    how.style.stochastic = how.style.stochastic && setup_.stochastic;
    how.stats = &stats_[i], how.block_counts = &blocks_[i];
    captured_values_[i].resize(StoredOf(operand).values.size());
    captured_[i].values = captured_values_[i].data();
    how.captured = &captured_[i];
  }
}

void LinearLayer::AddSums() {
  const scaling::Accumulators rules = precision_.accumulators_of(setup_.layer, /*spared=*/false);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    sums_[i].rule = spec_.sums[i].rule = rules[i];
    if (!rules[i]) continue;
    spec_.sums[i].counts = &sums_[i].counts;
    for (const std::size_t k : {2 * i, 2 * i + 1}) {
      const backend::OperandRounding& how = spec_.operands[k];
      graph::RefuseSumsWithoutExponents(
          how.rounds ? how.format : StoredOf(static_cast<Operand>(k)).format, setup_.layer);
    }
  }
}

const StoredMatrix& LinearLayer::StoredOf(Operand operand) const {
  if (IsWeight(operand)) return stored_.w;
  return operand == Operand::kForwardX || operand == Operand::kDwX ? stored_.x : stored_.dy;
}

std::vector<float> LinearLayer::BeforeRounding(Operand operand,
                                               const backend::OperandRounding& how) const {
  const StoredMatrix& stored = StoredOf(operand);
  if (!how.hadamard) return stored.values;
  const bool across = AlongChannels(operand, /*transposed=*/false);
  return record::Transformed(
      stored.values,
      {BlockLayoutOf({stored.rows, stored.columns}, across ? 1 : 0, /*square=*/false)},
      how.hadamard.Signs(pass_.seed, pass_.draw), HasValuesOf(kBf16, stored.format));
}

// The backend keeps the scales of rows to itself; the rule gives the same ones again.
void AddRowScales(const backend::OperandRounding& how, OperandMatrix& matrix) {
  const BlockLayout layout =
      BlockLayoutOf({matrix.rows, matrix.columns}, matrix.laid_across ? 1 : 0, /*square=*/false);
  for (const float amax : RowAmaxesOf(layout, matrix.before.data()))
    matrix.scales.push_back(scaling::RowScaleOf(how.rule, amax, matrix.bf16));
  matrix.by_row = true;
  matrix.multiplies_back = scaling::MultipliesBack(how.rule);
}

OperandMatrix LinearLayer::Captured(Operand operand) {
  const std::size_t i = IndexOf(operand);
  const backend::OperandRounding& how = spec_.operands[i];
  const StoredMatrix& stored = StoredOf(operand);
  OperandMatrix matrix;
  matrix.rows = stored.rows, matrix.columns = stored.columns;
  matrix.across = AlongChannels(operand, /*transposed=*/false);
  matrix.laid_across = AlongChannels(how.laid_as.value_or(operand), /*transposed=*/false);
  matrix.rounds = how.rounds;
  matrix.bf16 = HasValuesOf(kBf16, stored.format);
  matrix.before = BeforeRounding(operand, how);
  if (!how.rounds) {
    matrix.format = stored.format;
    matrix.values = matrix.before;
    return matrix;
  }
  matrix.format = how.block ? AnyFormat(*how.block) : AnyFormat(how.format);
  if (how.style.stochastic) matrix.words = RoundingWords{pass_.seed ^ how.style.stream, pass_.draw};
  matrix.values = std::move(captured_values_[i]);
  matrix.factor = static_cast<double>(captured_[i].factor);
  if (how.style.per_tensor_scale != nullptr) {
    const float scale = how.style.per_tensor_scale->scale;
    matrix.scales = {{scale, 1 / scale}};
  }
  if (how.row_scaled) AddRowScales(how, matrix);
  if (how.adaptive && how.current != nullptr) matrix.power = how.current->scale;
  matrix.stats = stats_[i], matrix.blocks = blocks_[i];
  return matrix;
}

LinearMatmuls LinearLayer::Run() {
  const std::unique_ptr<backend::Op> op = backend_->Make(spec_);
  op->RefreshWeights(pass_);
  op->Forward(pass_);
  if (stored_.dy) op->Backward(pass_);
  backend_->Synchronize();
  LinearMatmuls matmuls;
  for (std::size_t i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool of_forward = operand == Operand::kForwardX || operand == Operand::kForwardW;
    if (of_forward || stored_.dy) matmuls.operands[i] = Captured(operand);
  }
  matmuls.sums = sums_;
  matmuls.y = Read(spec_.y);
  if (!stored_.dy) return matmuls;
  matmuls.dx = Read(spec_.dx.tensor);
  matmuls.dw = Read(spec_.dw);
  matmuls.dw.format = spec_.dw_format;
  return matmuls;
}

void RoundStoredTo(const NumberFormat& format, StoredMatrix& matrix) {
  if (format == kFp32) return;
  for (float& x : matrix.values) x = RoundTo(format, x);
  matrix.format = format;
}

}  // namespace

LinearMatmuls ComputeLinearMatmuls(const LinearSetup& setup, LinearTensors tensors) {
  const graph::LayerFormats formats = graph::FormatsOf(setup.precision, setup.layer);
  RoundStoredTo(formats.activations, tensors.x);
  RoundStoredTo(formats.weights, tensors.w);
  RoundStoredTo(formats.gradients, tensors.dy);
  LinearMatmuls matmuls = LinearLayer(setup, tensors).Run();
  matmuls.stored = std::move(tensors);
  return matmuls;
}

}  // namespace ada::run
