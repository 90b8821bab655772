// Finding layers by the names of their tensors.
#include "study/inspect/inspect_layers.h"

#include <string_view>

#include "core/error.h"
#include "core/safetensors_header.h"
#include "core/text.h"

namespace ada::study {
namespace {

std::string Described(const TensorEntry& entry) {
  std::string text =
      safetensors::Shown(entry.name) + " " + std::string(ToString(entry.dtype)) + " [";
  for (std::size_t i = 0; i < entry.shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(entry.shape[i]);
  return text + "]";
}

[[noreturn]] void Refuse(const SafetensorsFile& file, const FileLayer& layer,
                         const std::string& expected) {
  throw DataError(file.path() + ": byte " + std::to_string(layer.dy->begin) + ": " +
                  Described(*layer.dy) + " and " + Described(*layer.w) +
                  " do not fit: " + expected);
}

// Kind, outputs and fan from the shapes of dy and w, which has two dimensions or more.
void TakeShapes(const SafetensorsFile& file, FileLayer& layer) {
  const std::vector<std::int64_t>&dy = layer.dy->shape, &w = layer.w->shape;
  if (!IsFloat(layer.w->dtype)) Refuse(file, layer, "the weight must be a float tensor");
  layer.outputs = w[0];
  layer.fan = static_cast<double>(w[0]);
  for (std::size_t i = 2; i < w.size(); ++i) layer.fan *= static_cast<double>(w[i]);
  if (layer.fan == 0) Refuse(file, layer, "a weight has at least one output and one tap");
  if (w.size() == 2) {
    layer.kind = FileLayer::Kind::kLinear;
    if (dy.size() < 2 || dy.back() != w[0])
      Refuse(file, layer, "a linear layer with w [out, in] has dy [n, out]");
    return;
  }
  layer.kind = FileLayer::Kind::kConvolution;
  if (dy.size() != w.size() || dy[1] != w[0])
    Refuse(file, layer, "a convolution with w [out, in, kh, kw] has dy [n, out, h, w]");
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
    layer.dy = &entry;
    layer.dx = file.Find(layer.name + ".dx");
    if (layer.dx != nullptr && !IsFloat(layer.dx->dtype)) layer.dx = nullptr;
    layer.w = file.Find(layer.name + ".w");
    if (layer.w != nullptr && layer.w->shape.size() < 2) {
      found.left_out.push_back(safetensors::Shown(layer.name) + ": " + Described(*layer.w) +
                               " is no weight of a linear layer or convolution: no scale");
      continue;
    }
    if (layer.w != nullptr) TakeShapes(file, layer);
    found.layers.push_back(std::move(layer));
  }
  return found;
}

}  // namespace ada::study
