// Stride and groups of a convolution, which the fan of its rule depends on. Dumps of a run say them
// in their metadata; of other files they are inferred from shapes.
#include <algorithm>
#include <charconv>

#include "error.h"
#include "io/shown_text.h"
#include "study/inspect/inspected.h"
#include "study/tensors_glob.h"

namespace ada::study {
namespace {

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

}  // namespace

bool IsShown(const SafetensorsFile& file, const InspectOptions& options,
             const std::string& tensor) {
  const bool of_blocks = (tensor.ends_with(".scales") || tensor.ends_with(".amax")) &&
                         file.metadata().contains("scale:" + tensor);
  const std::string& glob = options.tensors;
  return GlobMatch(glob, tensor) &&
         (!of_blocks || glob.ends_with("scales") || glob.ends_with("amax"));
}

bool ChoosesNoScale(const SafetensorsFile& file, const std::string& layer) {
  return file.MetadataOf("chooses_scale:" + layer) == "false";
}

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

}  // namespace ada::study
