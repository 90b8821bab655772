// A file's tensors as layers: shapes are checked once here, so that what observes values may rely
// on them. Observations go through the functions that the CPU backend calls in a backward pass.
#include <algorithm>
#include <bit>
#include <string_view>

#include "backend/cpu/rounding/count_rounding.h"
#include "backend/cpu/rounding/rule_inputs.h"
#include "error.h"
#include "io/tensor_files/safetensors_header.h"
#include "io/text.h"
#include "study/inspect/inspected.h"

namespace ada::study {
namespace {

std::string Described(const TensorEntry& entry) {
  return Shown(entry.name) + " " + ShapeText(entry);
}

[[noreturn]] void Refuse(const SafetensorsFile& file, const FileLayer& layer,
                         const std::string& expected) {
  throw DataError(file.path() + ": byte " + std::to_string(layer.dy->begin) + ": " +
                  Described(*layer.dy) + " and " + Described(*layer.w) +
                  " do not fit: " + expected);
}

// Kind, outputs and fan from the shapes of dy and w, which has two dimensions or more.
// The fan is the length of the sums in dx: outputs times the kernel's taps, divided by what groups
// and stride leave out of each sum.
void TakeShapes(const SafetensorsFile& file, FileLayer& layer) {
  const std::vector<std::int64_t>&dy = layer.dy->shape, &w = layer.w->shape;
  if (!IsFloat(layer.w->dtype)) Refuse(file, layer, "the weight must be a float tensor");
  const char* const fits = "a convolution with w [out, in, kh, kw] has dy [n, out, h, w]";
  if (w.size() > 2 && dy.size() != w.size()) Refuse(file, layer, fits);
  const Geometry geometry = w.size() > 2 ? GeometryOf(file, layer) : Geometry{};
  layer.transposed = geometry.transposed, layer.groups = geometry.groups;
  layer.outputs = layer.transposed ? w[1] * layer.groups : w[0];
  layer.fan_reference = static_cast<double>(layer.outputs);
  for (std::size_t i = 2; i < w.size(); ++i) layer.fan_reference *= static_cast<double>(w[i]);
  layer.fan_exact = layer.fan_reference;
  if (layer.fan_reference == 0) Refuse(file, layer, "a weight has at least one output and one tap");
  if (w.size() == 2) {
    layer.kind = FileLayer::Kind::kLinear;
    // A run's dump has tokens as pixels of one column: [n, out, tokens, 1].
    layer.channels_first = dy.size() == 4 && dy[3] == 1 && dy[1] == w[0];
    if (!layer.channels_first && (dy.size() < 2 || dy.back() != w[0]))
      Refuse(file, layer,
             "a linear layer with w [out, in] has dy [n, out] or [..., out], in a dump of "
             "sequences [n, out, tokens, 1]");
    return;
  }
  layer.kind = FileLayer::Kind::kConvolution;
  if (dy[1] != layer.outputs) Refuse(file, layer, fits);
  if (!geometry.fits)
    Refuse(file, layer,
           "the channels of x are those of w times the groups, which divide the outputs");
  layer.geometry_known = geometry.known;
  layer.fan_exact /= static_cast<double>(geometry.groups) * geometry.positions;
}

// NAME.factor, where there is one: to its rule a batch norm has sums of one product.
// A layer without w and factor stays a cast.
void TakeFactors(const SafetensorsFile& file, FileLayer& layer) {
  const TensorEntry* factor = file.Find(layer.name + ".factor");
  if (factor == nullptr) return;
  layer.w = factor;
  const std::vector<std::int64_t>& dy = layer.dy->shape;
  if (!IsFloat(factor->dtype) || factor->shape.size() != 1 || dy.size() < 2 ||
      dy[1] != factor->shape[0] || dy[1] == 0)
    Refuse(file, layer, "a batch norm with factors [c] has dy [n, c, ...]");
  layer.kind = FileLayer::Kind::kBatchNorm;
  layer.outputs = dy[1];
}

// Statistics of a layer's tensors, in double over all values.
using Values = std::vector<float>;

TensorMoments MomentsOf(const Values& values) {
  TensorMoments moments;
  backend::cpu::CountRounding(values.data(), static_cast<std::int64_t>(values.size()), 1, kFp32,
                              &moments);
  return moments;
}

// Magnitudes by output: runs of `inner` values belong to output 0, 1 ... and from the start again.
// Bits of magnitudes order as the values do, and `bits - 1` makes zero the largest of all, so that
// it never is the smallest magnitude.
backend::cpu::ChannelMagnitudes ByOutput(const Values& values, std::int64_t outputs,
                                         std::int64_t inner) {
  backend::cpu::ChannelMagnitudes found(outputs);
  const float* x = values.data();
  while (x != values.data() + values.size())
    for (std::size_t k = 0; k < found.max_bits.size(); ++k)
      for (const float* end = x + inner; x != end; ++x) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(*x) & 0x7fffffffu;
        found.min_bits[k] = std::min(found.min_bits[k], bits - 1);
        found.max_bits[k] = std::max(found.max_bits[k], bits);
      }
  return found;
}

// The weights of a transposed convolution as another one's: [out, in / groups, taps].
// ByOutput wants all weights of one output together; the groups' outputs follow one another.
Values OutputFirst(const Values& w, const FileLayer& layer) {
  const std::int64_t inputs = layer.w->shape[0] / layer.groups, outputs = layer.w->shape[1];
  const auto taps = static_cast<std::int64_t>(w.size()) / (layer.w->shape[0] * outputs);
  Values turned;
  for (std::int64_t o = 0; o < layer.outputs; ++o)
    for (std::int64_t i = 0; i < inputs; ++i) {
      const std::int64_t row = (o / outputs * inputs + i) * outputs + o % outputs;
      const auto first = w.begin() + row * taps;
      turned.insert(turned.end(), first, first + taps);
    }
  return turned;
}

// Values of a tensor after dimension `first`.
std::int64_t Inner(const TensorEntry& entry, std::size_t first) {
  std::int64_t product = 1;
  for (std::size_t i = first; i < entry.shape.size(); ++i) product *= entry.shape[i];
  return product;
}

}  // namespace

FileLayers FindLayers(const SafetensorsFile& file, const std::string& glob) {
  constexpr std::string_view kSuffix = ".dy";
  FileLayers found;
  for (const TensorEntry& entry : file.entries()) {
    if (!entry.name.ends_with(kSuffix) || entry.name.size() == kSuffix.size()) continue;
    if (!GlobMatch(glob, entry.name) || !IsFloat(entry.dtype)) continue;
    FileLayer layer;
    layer.name = entry.name.substr(0, entry.name.size() - kSuffix.size());
    if (file.MetadataOf("kind:" + layer.name) == "attention") {
      found.left_out.push_back(Shown(layer.name) +
                               ": attention decides for its dv, ds, dq and dk: no scale of dx");
      continue;
    }
    // Counted but not listed: there is no decision to show.
    if (ChoosesNoScale(file, layer.name)) {
      ++found.passing;
      continue;
    }
    layer.dy = &entry;
    layer.dx = file.Find(layer.name + ".dx");
    if (layer.dx != nullptr && !IsFloat(layer.dx->dtype)) layer.dx = nullptr;
    layer.w = file.Find(layer.name + ".w");
    if (layer.w != nullptr && layer.w->shape.size() < 2) {
      found.left_out.push_back(Shown(layer.name) + ": " + Described(*layer.w) +
                               " is no weight of a linear layer or convolution: no scale");
      continue;
    }
    layer.w != nullptr ? TakeShapes(file, layer) : TakeFactors(file, layer);
    found.layers.push_back(std::move(layer));
  }
  return found;
}

scaling::Observation Observe(const SafetensorsFile& file, const FileLayer& layer,
                             const NumberFormat& weight_format) {
  scaling::Observation seen;
  const Values dy = file.ReadF32(layer.dy->name);
  seen.dy = MomentsOf(dy);
  if (layer.w == nullptr) {
    backend::cpu::ObserveLogs(dy.data(), static_cast<std::int64_t>(dy.size()), seen);
    return seen;
  }
  Values w = file.ReadF32(layer.w->name);
  if (layer.kind != FileLayer::Kind::kBatchNorm)
    // A run multiplies a rounded copy; the file may hold the master.
    for (float& x : w) x = RoundTo(weight_format, x);
  seen.w = MomentsOf(w);
  if (dy.empty() || w.empty()) return seen;
  const bool last = layer.kind == FileLayer::Kind::kLinear && !layer.channels_first;
  if (layer.transposed) w = OutputFirst(w, layer);
  const std::int64_t inner = static_cast<std::int64_t>(w.size()) / layer.outputs;
  backend::cpu::ObserveProducts(ByOutput(dy, layer.outputs, last ? 1 : Inner(*layer.dy, 2)),
                                ByOutput(w, layer.outputs, inner), seen);
  return seen;
}

scaling::ExponentTail TailOf(const SafetensorsFile& file, const FileLayer& layer) {
  ADA_CHECK(layer.dx != nullptr);
  scaling::ExponentTail tail;
  std::uint32_t largest = 0;
  for (const float x : file.ReadF32(layer.dx->name)) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
    if (bits == 0) continue;
    ++tail.bins[bits >> 23];
    ++tail.nonzero;
    largest = bits > largest ? bits : largest;
  }
  tail.largest = std::bit_cast<float>(largest);
  return tail;
}

}  // namespace ada::study
