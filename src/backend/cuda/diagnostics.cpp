// See diagnostics.h.
#include "backend/cuda/diagnostics.h"

#include <algorithm>

#include "io/text.h"

namespace ada::backend::cuda {
namespace {

void AddOnce(std::vector<std::string>& lines, const std::string& line) {
  if (!Contains(lines, line)) lines.push_back(line);
}

}  // namespace

void DiagnosticLines::Diagnose(const std::string& line) { AddOnce(diagnostics_, line); }

void DiagnosticLines::Widened(const std::string& layer, const std::string& product) {
  auto found = std::find_if(widened_.begin(), widened_.end(),
                            [&](const Layer& known) { return known.name == layer; });
  if (found == widened_.end()) found = widened_.insert(found, {layer, {}});
  AddOnce(found->products, product);
}

void DiagnosticLines::NotRecorded(const std::string& why) {
  if (not_recorded_.empty()) not_recorded_ = why;
}

std::vector<std::string> DiagnosticLines::Warnings() const {
  constexpr std::size_t kMostLayers = 8;
  std::vector<std::string> warnings, layers;
  for (const Layer& layer : widened_)
    layers.push_back(layer.name + " (" + FirstNames(layer.products, layer.products.size()) + ")");
  if (!layers.empty())
    warnings.push_back(
        "products of 16-bit operands run in fp32, without Tensor Cores, because cuDNN or cuBLAS "
        "has no plan for them: " +
        FirstNames(layers, kMostLayers) + "; --verbose tells what was asked for");
  if (!not_recorded_.empty())
    warnings.push_back(
        "steps, or parts of them, are launched kernel by kernel, which is slower: the device "
        "cannot record them: " +
        not_recorded_);
  return warnings;
}

}  // namespace ada::backend::cuda
