// Reads layers from a dump: which tensors of a file belong to one product, and in which layout.
#include "study/what_if/dumped_matmuls.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>

#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "number/tensor.h"
#include "study/commands.h"
#include "study/run_files.h"
#include "telemetry/run_folder.h"

namespace ada::study {
namespace {

using judge::MatmulTensors;
using judge::StoredTensor;

// The number that the metadata have under `key`; 1 where they have none.
template <class Number>
Number MetadataNumber(const SafetensorsFile& file, const std::string& key) {
  const std::string text = file.MetadataOf(key);
  Number value = 1;
  if (text.empty()) return value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // A step that was skipped may have had a scale of 0, inf or NaN.
  const bool is_scale = std::is_floating_point_v<Number>,
             usable = is_scale ? !(value < 0) : value > 0;
  if (error != std::errc() || end != text.data() + text.size() || !usable)
    throw DataError(file.path() + ": metadata " + Shown(key) + ": expected a number, found " +
                    Shown(text));
  return value;
}

// Whether a tensor is kept as bf16, by its type or by the format that a dump's metadata name.
// Dumps are written in F32 and name the format of each tensor in their metadata.
bool IsBf16(const SafetensorsFile& file, const TensorEntry& entry) {
  if (entry.dtype == DType::kBF16) return true;
  const std::string key = "format:" + entry.name, format = file.MetadataOf(key);
  if (format.empty()) return false;
  try {
    return HasValuesOf(kBf16, config::ReadFormat(format));
  } catch (const ConfigError&) {
    throw DataError(file.path() + ": metadata " + Shown(key) +
                    ": expected a format (`ada-train formats`), found " + Shown(format));
  }
}

// An empty tensor stands for one that the file lacks; its operands are not judged.
StoredTensor Stored(const SafetensorsFile& file, const std::string& name) {
  StoredTensor tensor;
  const TensorEntry* entry = file.Find(name);
  if (entry == nullptr || !IsFloat(entry->dtype)) return tensor;
  tensor.values = file.ReadF32(name);
  tensor.dims = entry->shape.empty() ? std::vector<std::int64_t>{1} : entry->shape;
  tensor.bf16 = IsBf16(file, *entry);
  tensor.scale = MetadataNumber<double>(file, "scale:" + name);
  return tensor;
}

// The groups of a convolution: from the metadata, or from the shape of x (transposed: dy).
std::int64_t GroupsOf(const SafetensorsFile& file, const MatmulTensors& layer) {
  const std::string key = "groups:" + layer.layer;
  if (!file.MetadataOf(key).empty()) return MetadataNumber<std::int64_t>(file, key);
  const StoredTensor& grouped = layer.transposed ? layer.dy : layer.x;
  const bool known = grouped && grouped.dims.size() > 1 && layer.w.dims[1] > 0;
  return known ? std::max<std::int64_t>(1, grouped.dims[1] / layer.w.dims[1]) : 1;
}

// A layer by its NAME.w, of two axes or more.
MatmulTensors LayerOf(const SafetensorsFile& file, const std::string& name) {
  MatmulTensors layer;
  layer.layer = name;
  layer.w = Stored(file, name + ".w");
  layer.x = Stored(file, name + ".x");
  layer.dy = Stored(file, name + ".dy");
  // A linear layer takes an image as one row, or each of its tokens.
  const auto one_row = [](const StoredTensor& tensor, std::int64_t width) {
    if (!tensor || tensor.dims.size() < 2) return true;
    return std::accumulate(tensor.dims.begin() + 1, tensor.dims.end(), std::int64_t{1},
                           std::multiplies<>()) == width;
  };
  layer.linear = layer.w.dims.size() == 2 && one_row(layer.x, layer.w.dims[1]) &&
                 one_row(layer.dy, layer.w.dims[0]);
  layer.transposed = file.MetadataOf("kind:" + name) == "conv_transpose2d";
  if (!layer.linear) layer.groups = GroupsOf(file, layer);
  const std::vector<std::int64_t>& dims = layer.w.dims;
  const bool single =
      std::all_of(dims.begin() + 2, dims.end(), [](auto taps) { return taps == 1; });
  const std::string stride = file.MetadataOf("stride:" + name);
  layer.pointwise = single && (stride.empty() || stride == "1x1");
  layer.has_dx = file.Find(name + ".dx") != nullptr || file.MetadataOf("dx:" + name) == "true";
  const std::string refusal = judge::RefuseShapes(layer);
  if (!refusal.empty()) throw DataError(file.path() + ": layer " + Shown(name) + ": " + refusal);
  return layer;
}

// Whether the weight is multiplied, as far as a run's dump tells: an embedding has one as well.
bool IsMatmul(const SafetensorsFile& file, const std::string& layer) {
  const std::string kind = file.MetadataOf("kind:" + layer);
  return kind.empty() || kind == "linear" || kind == "conv2d" || kind == "conv_transpose2d";
}

}  // namespace

std::vector<std::string> DumpedMatmuls(const SafetensorsFile& file) {
  std::vector<std::string> layers;
  for (const TensorEntry& entry : file.entries()) {
    if (!entry.name.ends_with(".w") || !IsFloat(entry.dtype) || entry.shape.size() < 2) continue;
    const std::string name = entry.name.substr(0, entry.name.size() - 2);
    if (IsMatmul(file, name)) layers.push_back(name);
  }
  if (layers.empty())
    throw DataError(file.path() +
                    ": has no weights NAME.w of a linear layer or convolution; expected a dump of "
                    "log.dump, or tensors NAME.x, NAME.w and NAME.dy");
  return layers;
}

void EachDumpedMatmul(const SafetensorsFile& file,
                      const std::function<void(const MatmulTensors&)>& use) {
  for (const std::string& name : DumpedMatmuls(file)) use(LayerOf(file, name));
}

std::string NewestDump(const std::string& folder) {
  RequireRun(folder);
  std::vector<std::string> names;
  TryListFolder(folder + "/dump", &names);
  std::string newest;
  for (const std::string& name : names)
    // Steps have leading zeros in the names, so the largest name is the newest.
    if (telemetry::IsDump(name)) newest = std::max(newest, folder + "/dump/" + name);
  if (newest.empty())
    throw DataError(folder +
                    ": has no dump, and histograms do not know the rows and blocks of a tensor; "
                    "run again with log.dump_every (a recording: dump_every=); --format of a plain "
                    "format, --scale and --policy are judged by log.histogram_every, blocks also "
                    "by log.what_if");
  return newest;
}

}  // namespace ada::study
