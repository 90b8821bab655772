// A file's tensors as layers: shapes are checked once here, so that what observes values may rely
// on them. Observations go through the functions that the CPU backend calls in a backward pass.
// Stride and groups of a convolution, which the fan of its rule depends on, dumps of a run say in
// their metadata; of other files they are inferred from shapes.
#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>

#include "backend/cpu/rounding/count_rounding.h"
#include "backend/cpu/rounding/rule_inputs.h"
#include "error.h"
#include "io/shown_text.h"
#include "io/tensor_files/safetensors_header.h"
#include "io/text.h"
#include "study/inspect/inspected.h"

namespace ada::study {
namespace {

// What determines the number of terms in the sums of a convolution's dx.
struct Geometry {
  std::int64_t groups = 1;
  double positions = 1;  // the strides, multiplied; of a transposed convolution 1
  bool transposed = false;
  bool known = false;  // false: the file tells neither
  bool fits = true;    // false: the input's channels are no multiple of w's
};

// A whole number from 1 on at the start of `text`, which then begins after it; 0: there is none.
std::int64_t TakeNumber(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 1) return 0;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// The metadata under `key`: numbers separated by 'x' ("2x1"); empty: there are none.
std::vector<std::int64_t> NumbersOf(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  std::vector<std::int64_t> numbers;
  if (found == file.metadata().end()) return numbers;
  std::string_view rest = found->second;
  for (bool more = true; more;) {
    const std::int64_t number = TakeNumber(rest);
    more = rest.starts_with('x');
    if (more) rest.remove_prefix(1);
    if (number == 0 || (!more && !rest.empty()))
      throw DataError(file.path() + ": metadata " + Shown(key) +
                      ": expected whole numbers with x between them, found " +
                      Shown(found->second));
    numbers.push_back(number);
  }
  return numbers;
}

// The smallest stride at which a window of `taps` gives `out` places over `in` values, padded by
// half its width at most; where none does (a dilated window), what their quotient is near to.
// The shape of an output leaves several pairs of stride and padding open; the smallest stride is
// the usual one.
std::int64_t StrideOf(std::int64_t in, std::int64_t out, std::int64_t taps) {
  if (out < 1) return 1;
  std::int64_t smallest = 0;
  for (std::int64_t padding = 0; padding <= taps / 2; ++padding) {
    const std::int64_t room = in + 2 * padding - taps;
    if (room < 0) continue;
    const std::int64_t stride = room / out + 1;  // the first with no more than `out` places
    if (room / stride + 1 == out && (smallest == 0 || stride < smallest)) smallest = stride;
  }
  return smallest > 0 ? smallest : std::max<std::int64_t>((in + out / 2) / out, 1);
}

bool GivesShapes(const TensorEntry* input, const FileLayer& layer) {
  return input != nullptr && input->shape.size() == layer.w->shape.size() && layer.w->shape[1] > 0;
}

// Whether a dump's metadata ("chooses_scale:NAME") say that the layer passes its scale on.
bool ChoosesNoScale(const SafetensorsFile& file, const std::string& layer) {
  return file.MetadataOf("chooses_scale:" + layer) == "false";
}

// From a dump's metadata ("kind:NAME", "groups:NAME", "stride:NAME" as "2x2"), or from the shapes
// of NAME.x or NAME.dx together with dy and w. DataError if the metadata are not such numbers.
Geometry GeometryOf(const SafetensorsFile& file, const FileLayer& layer) {
  Geometry geometry;
  const std::vector<std::int64_t> stride = NumbersOf(file, "stride:" + layer.name);
  const std::vector<std::int64_t> groups = NumbersOf(file, "groups:" + layer.name);
  const TensorEntry* x = file.Find(layer.name + ".x");
  const TensorEntry* input = GivesShapes(x, layer) ? x : layer.dx;
  geometry.known = (!stride.empty() && !groups.empty()) || GivesShapes(input, layer);
  if (!groups.empty()) geometry.groups = groups.front();
  geometry.transposed = file.MetadataOf("kind:" + layer.name) == "conv_transpose2d";
  // To its rule no stride thins out a transposed convolution's sums.
  if (geometry.transposed) {
    geometry.fits = layer.w->shape[0] % geometry.groups == 0;
    return geometry;
  }
  for (const std::int64_t step : stride) geometry.positions *= static_cast<double>(step);
  if (!GivesShapes(input, layer)) return geometry;
  const std::vector<std::int64_t>&w = layer.w->shape, &in = input->shape, &dy = layer.dy->shape;
  if (groups.empty()) {
    geometry.groups = in[1] / w[1];
    geometry.fits = geometry.groups >= 1 && in[1] % w[1] == 0 && w[0] % geometry.groups == 0;
  }
  if (stride.empty())
    for (std::size_t i = 2; i < w.size(); ++i)
      geometry.positions *= static_cast<double>(StrideOf(in[i], dy[i], w[i]));
  return geometry;
}

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

// The scales that a run's dump has of block-scaled operands take a glob that ends in their names.
bool IsShown(const SafetensorsFile& file, const InspectOptions& options,
             const std::string& tensor) {
  const bool of_blocks = (tensor.ends_with(".scales") || tensor.ends_with(".amax")) &&
                         file.metadata().contains("scale:" + tensor);
  const std::string& glob = options.tensors;
  return GlobMatch(glob, tensor) &&
         (!of_blocks || glob.ends_with("scales") || glob.ends_with("amax"));
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

void EachShown(const SafetensorsFile& file, const InspectOptions& options,
               const std::function<void(const TensorEntry&)>& count,
               const std::function<void(const TensorEntry&)>& skip) {
  for (const TensorEntry& entry : file.entries()) {
    if (!IsShown(file, options, entry.name)) continue;
    if (IsFloat(entry.dtype))
      count(entry);
    else if (skip)
      skip(entry);
  }
}

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
