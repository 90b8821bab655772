// A convolution's products are those of matrices: a row for each pixel, in which the taps of the
// window follow each other and within a tap the channels, as training adds them.
#include <algorithm>
#include <array>
#include <cstdio>

#include "error.h"
#include "run/matmuls/linear_matmuls.h"
#include "study/what_if/dumped_matmuls.h"

namespace ada::study {
namespace {

using judge::MatmulTensors;
using judge::StoredTensor;
using run::StoredMatrix;
using scaling::AccumulatorCounts;
using scaling::LayerMatmul;
using MatmulCounts = std::array<std::optional<AccumulatorCounts>, scaling::kLayerMatmuls>;

// Rows of the last axis of a linear layer's tensor, or of all of an image.
StoredMatrix MatrixOf(const StoredTensor& tensor, std::int64_t columns) {
  StoredMatrix matrix;
  matrix.values = tensor.values, matrix.format = tensor.format;
  matrix.columns = columns;
  matrix.rows = std::ssize(tensor.values) / columns;
  return matrix;
}

run::LinearMatmuls Multiplied(const config::PrecisionConfig& precision, const std::string& layer,
                              run::LinearTensors tensors) {
  run::LinearSetup setup;
  setup.precision = precision, setup.layer = layer;
  return run::ComputeLinearMatmuls(setup, std::move(tensors));
}

void AddSumsOf(const run::LinearMatmuls& from, LayerMatmul matmul, LayerMatmul as,
               MatmulCounts& counts) {
  const run::MatmulSums& sums = from.sums[scaling::IndexOf(matmul)];
  if (!sums.rule) return;
  auto& to = counts[scaling::IndexOf(as)];
  if (!to) to.emplace();
  to->Add(sums.counts);
}

// x [n, channels, pixels..] of a linear layer that takes tokens has its features on axis 1.
StoredTensor FeaturesLast(const StoredTensor& tensor, std::int64_t features) {
  if (!tensor || tensor.dims.size() < 3 || std::ssize(tensor.values) == tensor.dims[0] * features)
    return tensor;
  StoredTensor turned = tensor;
  const std::int64_t tokens = std::ssize(tensor.values) / (tensor.dims[0] * features);
  for (std::int64_t n = 0; n < tensor.dims[0]; ++n)
    for (std::int64_t f = 0; f < features; ++f)
      for (std::int64_t t = 0; t < tokens; ++t)
        turned.values[static_cast<std::size_t>((n * tokens + t) * features + f)] =
            tensor.values[static_cast<std::size_t>((n * features + f) * tokens + t)];
  return turned;
}

MatmulCounts OfLinear(const MatmulTensors& layer, const config::PrecisionConfig& precision) {
  const std::int64_t out = layer.w.dims[0], in = layer.w.dims[1];
  run::LinearTensors tensors = {MatrixOf(FeaturesLast(layer.x, in), in), MatrixOf(layer.w, in), {}};
  if (layer.dy) tensors.dy = MatrixOf(FeaturesLast(layer.dy, out), out);
  const bool has_dy = static_cast<bool>(tensors.dy);
  const run::LinearMatmuls matmuls = Multiplied(precision, layer.layer, std::move(tensors));
  MatmulCounts counts;
  for (std::size_t i = 0; i < (has_dy ? scaling::kLayerMatmuls : 1); ++i)
    AddSumsOf(matmuls, static_cast<LayerMatmul>(i), static_cast<LayerMatmul>(i), counts);
  return counts;
}

// How a convolution's window moves: height, width.
using Strides = std::array<std::int64_t, 2>;
Strides StridesOf(const SafetensorsFile& file, const MatmulTensors& layer) {
  int height = 0, width = 0;
  const std::string text = file.MetadataOf("stride:" + layer.layer);
  if (std::sscanf(text.c_str(), "%dx%d", &height, &width) == 2 && height > 0 && width > 0)
    return {height, width};
  Strides strides = {1, 1};
  for (std::size_t i = 0; layer.dy && i < 2 && 2 + i < layer.dy.dims.size(); ++i) {
    const std::int64_t in = layer.x.dims[2 + i], out = layer.dy.dims[2 + i];
    strides[i] = std::max<std::int64_t>(1, (in + out / 2) / out);
  }
  return strides;
}

// The places of a convolution's tensors.
struct Window {
  std::int64_t images, in[2], out[2], taps[2], stride[2], padding[2];
  std::int64_t channels, features;  // of one group
};

Window WindowOf(const MatmulTensors& layer, const Strides& strides) {
  Window window{};
  window.images = layer.x.dims[0];
  window.channels = layer.w.dims[1], window.features = layer.w.dims[0] / layer.groups;
  for (std::size_t i = 0; i < 2; ++i) {
    const bool flat = layer.w.dims.size() < 3 + i;
    const auto along = [&](const StoredTensor& t) {
      return flat || t.dims.size() < 3 + i ? std::int64_t{1} : t.dims[2 + i];
    };
    window.taps[i] = along(layer.w), window.in[i] = along(layer.x);
    window.stride[i] = strides[i];
    window.out[i] = layer.dy ? along(layer.dy) : (window.in[i] - 1) / strides[i] + 1;
    const std::int64_t padded = (window.out[i] - 1) * window.stride[i] + window.taps[i];
    window.padding[i] = std::max<std::int64_t>(0, (padded - window.in[i] + 1) / 2);
  }
  return window;
}

// [images and pixels of `rows`, taps and channels]: what each tap meets of `tensor` [images,
// channels, pixels]. meets(i, place, tap): the place along axis i, or -1.
template <class Meets>
StoredMatrix Gathered(const StoredTensor& tensor, const Window& window, const std::int64_t* rows,
                      const std::int64_t* pixels, std::int64_t first, std::int64_t channels,
                      Meets&& meets) {
  StoredMatrix matrix;
  matrix.format = tensor.format;
  matrix.rows = window.images * rows[0] * rows[1];
  matrix.columns = window.taps[0] * window.taps[1] * channels;
  matrix.values.reserve(static_cast<std::size_t>(matrix.rows * matrix.columns));
  const std::int64_t plane = pixels[0] * pixels[1];
  for (std::int64_t n = 0; n < window.images; ++n)
    for (std::int64_t y = 0; y < rows[0]; ++y)
      for (std::int64_t x = 0; x < rows[1]; ++x)
        for (std::int64_t i = 0; i < window.taps[0]; ++i)
          for (std::int64_t j = 0; j < window.taps[1]; ++j) {
            const std::int64_t v = meets(0, y, i), u = meets(1, x, j);
            const std::int64_t at = (n * tensor.dims[1] + first) * plane + v * pixels[1] + u;
            for (std::int64_t c = 0; c < channels; ++c)
              matrix.values.push_back(
                  v < 0 || u < 0 ? 0 : tensor.values[static_cast<std::size_t>(at + c * plane)]);
          }
  return matrix;
}

// Weights of a group as [features, taps and channels], or [channels, taps and features].
StoredMatrix WeightsOf(const StoredTensor& w, const Window& window, std::int64_t group,
                       bool turned) {
  const std::int64_t taps = window.taps[0] * window.taps[1];
  StoredMatrix matrix;
  matrix.format = w.format;
  matrix.rows = turned ? window.channels : window.features;
  const std::int64_t inner = turned ? window.features : window.channels;
  matrix.columns = taps * inner;
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t tap = 0; tap < taps; ++tap)
      for (std::int64_t k = 0; k < inner; ++k) {
        const std::int64_t feature = group * window.features + (turned ? k : row);
        const std::int64_t channel = turned ? row : k;
        matrix.values.push_back(
            w.values[static_cast<std::size_t>((feature * window.channels + channel) * taps + tap)]);
      }
  return matrix;
}

MatmulCounts OfConvolution(const MatmulTensors& layer, const Strides& strides,
                           const config::PrecisionConfig& precision) {
  for (const auto& operand : precision.operands.by_operand)
    if (operand && operand->format && std::holds_alternative<BlockFormat>(*operand->format))
      throw ConfigError("--accumulate: layer " + layer.layer +
                        " is a convolution, whose blocks lie within a tap; judge such formats with "
                        "log.what_if, or take a plain --format");
  const Window window = WindowOf(layer, strides);
  const auto on = [](std::int64_t place, std::int64_t size) {
    return place >= 0 && place < size ? place : -1;
  };
  const auto of_x = [&](int i, std::int64_t place, std::int64_t tap) {
    return on(place * window.stride[i] - window.padding[i] + tap, window.in[i]);
  };
  const auto of_dy = [&](int i, std::int64_t place, std::int64_t tap) {
    const std::int64_t at = place + window.padding[i] - tap;
    return at % window.stride[i] != 0 ? -1 : on(at / window.stride[i], window.out[i]);
  };
  Window pixel = window;  // a window of one tap
  pixel.taps[0] = pixel.taps[1] = 1;
  const auto as_it_is = [](int, std::int64_t place, std::int64_t) { return place; };
  MatmulCounts counts;
  for (std::int64_t group = 0; group < layer.groups; ++group) {
    const std::int64_t features = group * window.features;
    run::LinearTensors forward = {Gathered(layer.x, window, window.out, window.in,
                                           group * window.channels, window.channels, of_x),
                                  WeightsOf(layer.w, window, group, /*turned=*/false),
                                  {}};
    if (layer.dy)
      forward.dy =
          Gathered(layer.dy, pixel, window.out, window.out, features, window.features, as_it_is);
    const run::LinearMatmuls matmuls = Multiplied(precision, layer.layer, std::move(forward));
    AddSumsOf(matmuls, LayerMatmul::kForward, LayerMatmul::kForward, counts);
    if (!layer.dy) continue;
    AddSumsOf(matmuls, LayerMatmul::kDw, LayerMatmul::kDw, counts);
    // dx as a forward matmul of dy: by the rule and the operands of dx.
    config::PrecisionConfig turned = precision;
    turned.accumulate.by_matmul[scaling::IndexOf(LayerMatmul::kForward)] =
        precision.accumulate.by_matmul[scaling::IndexOf(LayerMatmul::kDx)];
    auto& operands = turned.operands.by_operand;
    operands[IndexOf(Operand::kForwardX)] = operands[IndexOf(Operand::kDxDy)];
    operands[IndexOf(Operand::kForwardW)] = operands[IndexOf(Operand::kDxW)];
    AddSumsOf(Multiplied(turned, layer.layer,
                         {Gathered(layer.dy, window, window.in, window.out, features,
                                   window.features, of_dy),
                          WeightsOf(layer.w, window, group, /*turned=*/true),
                          {}}),
              LayerMatmul::kForward, LayerMatmul::kDx, counts);
  }
  return counts;
}

}  // namespace

std::vector<DumpSumsRow> JudgeSums(const SafetensorsFile& file, const MatmulTensors& layer,
                                   const config::PrecisionConfig& precision) {
  const MatmulCounts counts = layer.w.dims.size() == 2
                                  ? OfLinear(layer, precision)
                                  : OfConvolution(layer, StridesOf(file, layer), precision);
  std::vector<DumpSumsRow> rows;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (!counts[i]) continue;
    DumpSumsRow& row = rows.emplace_back();
    row.Take(*counts[i]);
    row.layer = layer.layer, row.tensor = scaling::kLayerMatmulNames[i];
    row.accumulator = scaling::AccumulatorText(*precision.accumulate.by_matmul[i]->rule);
    const auto& operand = precision.operands.by_operand[2 * i];
    if (operand && operand->format) row.format = FormatName(*operand->format);
  }
  return rows;
}

}  // namespace ada::study
