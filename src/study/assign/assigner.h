// The search of `assign`: the cheapest format of each layer with which the gradients of a network
// stay as they are in fp32, within a budget.
#pragma once
#include <vector>

#include "number/blocks/block_format.h"
#include "run/fork/fork.h"
#include "study/commands.h"

namespace ada::study {

// Used by assign.cpp: the constructor, then Find once, then the results. Each try is a fork of one
// step (run/fork/fork.h), which costs a forward and a backward pass.
class Assigner {
 public:
  // Computes the gradients in fp32. All of them outlive this.
  Assigner(const run::ForkSource& source, const AssignOptions& options, telemetry::Log& log);
  // Tries the formats, the cheapest first, on the layers that have none yet: by groups, each half
  // of one that does not fit for itself.
  void Find();

  // Those that round anything, as the configuration stores them, and what was found for each.
  const std::vector<run::ForkLayer>& layers() const { return layers_; }
  const std::vector<AnyFormat>& formats() const { return formats_; }
  // The distance of blame (study/blame/findings.h) between the gradients with formats() and those
  // in fp32.
  double error() const { return error_; }
  int forks() const { return forks_; }
  // Returns the section for these formats. A block-scaled one is of a layer's operands; the layer
  // is stored as the configuration says.
  config::PrecisionConfig Precision(const std::vector<AnyFormat>& formats) const;

 private:
  NumberFormat Usual(const std::vector<AnyFormat>& formats) const;
  run::ForkResult Gradients(const std::vector<AnyFormat>& formats);
  // Gives `format` to as many layers of the group as bear it.
  void Try(const std::vector<std::size_t>& group, const AnyFormat& format);

  const run::ForkSource& source_;
  const AssignOptions& options_;
  telemetry::Log& log_;
  std::vector<run::ForkLayer> layers_;
  std::vector<AnyFormat> formats_;  // of layers_
  run::ForkResult reference_;
  double error_ = 0;
  int forks_ = 0;
};

}  // namespace ada::study
