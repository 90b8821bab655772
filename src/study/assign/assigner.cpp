// A search by bisection: if a group of layers does not tolerate a format, each half is tried
// separately, in addition to what was accepted before. It needs few forks if most layers tolerate
// it; the result need not be the cheapest set of all.
#include "study/assign/assigner.h"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>

#include "judge/serving.h"
#include "study/blame/findings.h"

namespace ada::study {
namespace {

bool IsFp32(const AnyFormat& format) { return format == AnyFormat(kFp32); }

// Those that round something where formats are below fp32.
// Formats below fp32 are needed to ask whether a layer rounds; bf16 stands for all of them.
std::vector<run::ForkLayer> LayersThatRound(const run::ForkSource& source) {
  config::PrecisionConfig narrow;
  narrow.format = kBf16;
  const std::vector<run::ForkLayer> all = source.Layers(narrow);
  std::vector<run::ForkLayer> layers = source.Layers(source.config().precision), rounding;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].rounds) rounding.push_back(layers[i]);
  return rounding;
}

// Block-scaled formats are of operands, which only products have.
bool Takes(const run::ForkLayer& layer, const AnyFormat& format) {
  return layer.has_weight || std::holds_alternative<NumberFormat>(format);
}

// A layer whose operands are in a block-scaled format is stored as the configuration says.
config::LayerPrecisionConfig EntryFor(const run::ForkLayer& layer, const AnyFormat& format) {
  config::LayerPrecisionConfig entry;
  entry.match = layer.name;
  if (const auto* plain = std::get_if<NumberFormat>(&format)) {
    entry.format = *plain;
    return entry;
  }
  entry.operands.by_operand.fill(config::OperandConfig{format});
  if (layer.activations == layer.weights && layer.weights == layer.gradients) {
    entry.format = layer.activations;
    return entry;
  }
  entry.activations = layer.activations;
  entry.weights = layer.weights;
  entry.gradients = layer.gradients;
  return entry;
}

}  // namespace

Assigner::Assigner(const run::ForkSource& source, const AssignOptions& options, telemetry::Log& log)
    : source_(source),
      options_(options),
      log_(log),
      layers_(LayersThatRound(source)),
      formats_(layers_.size(), kFp32) {
  reference_ = Gradients(formats_);
}

void Assigner::Find() {
  std::vector<AnyFormat> formats = options_.formats;
  // Formats of equal bits keep the order of the command line.
  std::stable_sort(formats.begin(), formats.end(), [](const auto& a, const auto& b) {
    return judge::BitsOf(a) < judge::BitsOf(b);
  });
  for (const AnyFormat& format : formats) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (IsFp32(formats_[i]) && Takes(layers_[i], format)) open.push_back(i);
    if (!open.empty()) Try(open, format);
  }
}

config::PrecisionConfig Assigner::Precision(const std::vector<AnyFormat>& formats) const {
  config::PrecisionConfig precision;
  precision.format = Usual(formats);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    config::LayerPrecisionConfig entry = EntryFor(layers_[i], formats[i]);
    if (entry.format == precision.format) entry.format.reset();
    if (entry.format || entry.activations || entry.operands.given())
      precision.layers.push_back(entry);
  }
  return precision;
}

// The format in which most layers are stored; fp32 too counts as one that layers have.
// A fragment with the most frequent format as `format` needs the fewest entries.
NumberFormat Assigner::Usual(const std::vector<AnyFormat>& formats) const {
  std::vector<NumberFormat> stored;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (const auto format = EntryFor(layers_[i], formats[i]).format) stored.push_back(*format);
  if (stored.empty()) return kFp32;
  return *std::max_element(stored.begin(), stored.end(), [&](const auto& a, const auto& b) {
    return std::count(stored.begin(), stored.end(), a) <
           std::count(stored.begin(), stored.end(), b);
  });
}

run::ForkResult Assigner::Gradients(const std::vector<AnyFormat>& formats) {
  log_.SetStatus("fork " + std::to_string(++forks_));
  run::ForkSpec spec;
  spec.precision = Precision(formats);
  spec.gradients = true;
  return source_.Run(spec);
}

void Assigner::Try(const std::vector<std::size_t>& group, const AnyFormat& format) {
  std::vector<AnyFormat> tried = formats_;
  for (const std::size_t i : group) tried[i] = format;
  // The whole network with all formats so far is measured, since errors of layers add up.
  const double error = Distance(Gradients(tried), reference_);
  if (error <= options_.budget) {
    formats_ = std::move(tried);
    error_ = error;
    return;
  }
  if (group.size() == 1) return;
  const auto middle = group.begin() + static_cast<std::ptrdiff_t>(group.size() / 2);
  Try({group.begin(), middle}, format);
  Try({middle, group.end()}, format);
}

}  // namespace ada::study
