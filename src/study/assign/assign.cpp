// assign: the cheapest format of each layer with which the gradients of a network stay as they are
// in fp32, within a budget; found by groups, each half of one that does not fit tried for itself.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "core/utf8.h"
#include "study/blame/parts.h"
#include "study/commands.h"
#include "study/text_table.h"
#include "train/fork/fork.h"

namespace ada::study {
namespace {

int BitsOfFormat(const NumberFormat& format) {
  return 1 + format.exponent_bits + format.mantissa_bits;
}

class Assigner {
 public:
  Assigner(const train::ForkSource& source, const AssignOptions& options, telemetry::Log& log)
      : source_(source), options_(options), log_(log) {
    for (const train::ForkLayer& layer : source.Layers()) layers_.push_back(layer.name);
    formats_.assign(layers_.size(), kFp32);
    reference_ = Gradients(formats_);
  }

  void Find() {
    std::vector<NumberFormat> formats = options_.formats;
    std::stable_sort(formats.begin(), formats.end(), [](const auto& a, const auto& b) {
      return BitsOfFormat(a) < BitsOfFormat(b);
    });
    for (const NumberFormat& format : formats) {
      std::vector<std::size_t> open;
      for (std::size_t i = 0; i < layers_.size(); ++i)
        if (formats_[i] == kFp32) open.push_back(i);
      if (!open.empty()) Try(open, format);
    }
  }

  const std::vector<std::string>& layers() const { return layers_; }
  const std::vector<NumberFormat>& formats() const { return formats_; }
  double error() const { return error_; }
  int forks() const { return forks_; }
  config::PrecisionConfig Precision(const std::vector<NumberFormat>& formats) const {
    config::PrecisionConfig precision;
    precision.format = Usual(formats);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (formats[i] == precision.format) continue;
      config::LayerPrecisionConfig& entry = precision.layers.emplace_back();
      entry.match = layers_[i];
      entry.format = formats[i];
    }
    return precision;
  }

 private:
  // Fp32 too counts as one that layers have.
  static NumberFormat Usual(const std::vector<NumberFormat>& formats) {
    return *std::max_element(formats.begin(), formats.end(), [&](const auto& a, const auto& b) {
      return std::count(formats.begin(), formats.end(), a) <
             std::count(formats.begin(), formats.end(), b);
    });
  }
  train::ForkResult Gradients(const std::vector<NumberFormat>& formats) {
    log_.SetStatus("fork " + std::to_string(++forks_));
    train::ForkSpec spec;
    spec.precision = Precision(formats);
    spec.gradients = true;
    return source_.Run(spec);
  }
  // Gives `format` to as many layers of the group as bear it.
  void Try(const std::vector<std::size_t>& group, const NumberFormat& format) {
    std::vector<NumberFormat> tried = formats_;
    for (const std::size_t i : group) tried[i] = format;
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

  const train::ForkSource& source_;
  const AssignOptions& options_;
  telemetry::Log& log_;
  std::vector<std::string> layers_;
  std::vector<NumberFormat> formats_;  // of layers_
  train::ForkResult reference_;
  double error_ = 0;
  int forks_ = 0;
};

std::string PercentOfOne(double share) { return Formatted("%.3g %%", 100 * share); }

std::string FragmentOf(const config::PrecisionConfig& precision) {
  std::string text = "precision:\n  format: " + FormatName(precision.format) + "\n";
  if (!precision.layers.empty()) text += "  layers:\n";
  for (const config::LayerPrecisionConfig& entry : precision.layers)
    text += "    - {match: " + config::YamlText(entry.match) +
            ", format: " + FormatName(*entry.format) + "}\n";
  return text;
}

// The training with the formats compared with the one in fp32, from the same start.
void Prove(const train::ForkSource& source, const AssignOptions& options, const Assigner& found,
           std::ostream& out) {
  if (options.steps == 0) return;
  const auto last = [&](const config::PrecisionConfig& precision) {
    train::ForkSpec spec;
    spec.precision = precision;
    spec.steps = options.steps;
    const std::vector<double> losses = source.Run(spec).losses;
    const std::size_t some = std::min<std::size_t>(losses.size(), 10);
    double sum = 0;
    for (std::size_t i = losses.size() - some; i < losses.size(); ++i) sum += losses[i];
    return sum / static_cast<double>(some);
  };
  const double with = last(found.Precision(found.formats()));
  const double without = last(config::PrecisionConfig());
  out << "After " << Counted(options.steps, "step")
      << " the loss (mean of the last ten at most) is " << Formatted("%.5g", with) << ", in fp32 "
      << Formatted("%.5g", without) << ": "
      << Formatted("%+.3g %%", 100 * (with - without) / without) << ".\n";
}

}  // namespace

void Assign(const AssignOptions& options, std::ostream& out, telemetry::Log& log) {
  const train::ForkSource source = train::ForkSource::OfConfig(options.config);
  Assigner assigner(source, options, log);
  assigner.Find();
  log.SetStatus("");
  TextTable table({"layer", "format", "bits"});
  double bits = 0;
  for (std::size_t i = 0; i < assigner.layers().size(); ++i) {
    const NumberFormat& format = assigner.formats()[i];
    table.Row({assigner.layers()[i], FormatName(format), std::to_string(BitsOfFormat(format))});
    bits += BitsOfFormat(format);
  }
  table.Print(out, kTerminalWidth);
  out << "Weight gradients of the first batch differ from those in fp32 by "
      << PercentOfOne(assigner.error()) << " (budget " << PercentOfOne(options.budget) << "), "
      << "with " << Formatted("%.3g", bits / static_cast<double>(assigner.layers().size()))
      << " bits\nfor the mean layer; " << Counted(assigner.forks(), "fork") << ".\n";
  Prove(source, options, assigner, out);
  const std::string fragment = FragmentOf(assigner.Precision(assigner.formats()));
  out << "\n" << VisibleLines(fragment);
  if (!options.yaml.empty()) WriteFileAtomically(options.yaml, fragment);
}

}  // namespace ada::study
