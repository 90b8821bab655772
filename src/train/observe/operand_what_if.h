// What block-scaled formats of log.what_if would do to the operands of a step's products: the
// tensors themselves are looked at, for histograms do not know the blocks.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/blocks/operand_blocks.h"
#include "core/tensor_names.h"
#include "telemetry/rows.h"
#include "train/distributed/team.h"
#include "train/observe/operands.h"
#include "train/observe/step_observer.h"

namespace ada::train {

// Counts, in the steps with histograms, every operand that convolutions and linear layers multiply,
// made of what is stored: x, w and dy as a dump has them. Blocks lie as under precision.operands; a
// scale of the tensor is of one micro-batch. All operands are rounded to nearest, none is
// transformed.
class OperandWhatIf : public StepObserver {
 public:
  // All must outlive it. Each process of the team counts its part of the batch, under a tensor
  // scale of all where rules are joined; the rows are those of all.
  OperandWhatIf(const config::Config& config, const graph::Graph& graph, backend::Backend& backend,
                Team& team = Team::OfOne());
  // Whether log.what_if has such formats.
  static bool Wanted(const config::LogConfig& log);

  bool Due(std::int64_t step) const override;
  void Begin(std::int64_t step, const backend::Pass& pass) override;
  void Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) override;
  void EndMicroBatch(const MicroBatch&) override {}
  void End() override;

  // For the last step that was due: by scenario, layer and operand. step and epoch are the caller's
  // to fill in.
  const std::vector<telemetry::WhatIfBlockRow>& rows() const { return rows_; }

 private:
  struct Asked {
    std::string scenario;
    BlockFormat format;
  };
  struct Product {
    std::string layer;
    OperandLayer is;
    bool has_dx = false;
    double scale = 1;  // S of its dy
  };
  // Adds the operands that are made of `values` to the counts of a layer. `team`: whose rows lie
  // along the batch.
  void Count(std::size_t product, const std::vector<Operand>& operands,
             const std::function<OperandPlace(Operand)>& place_of, bool bf16,
             const std::vector<float>& values, float amax, Team& team);
  BlockCounts& CountsOf(std::size_t asked, std::size_t product, Operand operand) {
    return counts_[(asked * products_.size() + product) * kOperands + IndexOf(operand)];
  }
  bool Exists(const Product& product, Operand operand) const;

  const config::Config& config_;
  const graph::Graph& graph_;
  backend::Backend& backend_;
  Team& team_;
  std::vector<Asked> asked_;
  std::vector<Product> products_;
  std::map<std::string, std::size_t> by_layer_;
  std::vector<BlockCounts> counts_;
  std::vector<telemetry::WhatIfBlockRow> rows_;
};

}  // namespace ada::train
