// What the block-scaled formats of log.what_if would do to the operands of a step's matmuls. The
// tensors themselves are examined, because histograms know nothing about blocks.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/tensor_names.h"
#include "number/blocks/operand_blocks.h"
#include "record/dumped_operands.h"
#include "step/step_observer.h"
#include "step/team.h"
#include "telemetry/rows.h"

namespace ada::record {

// In steps with histograms, counts every operand that convolutions and linear layers multiply, made
// from the stored x, w and dy (those of a dump), and takes what attention counts of its own, which
// exist only within it. Blocks are laid out as under precision.operands; a per-tensor scale is that
// of one micro-batch. All operands are rounded to nearest; none gets a Hadamard transform.
class OperandWhatIf : public step::StepObserver {
 public:
  // All must outlive it. Each process of the team counts its part of the batch, with a tensor scale
  // common to all where rules are joined; the rows hold the totals of all processes.
  OperandWhatIf(const config::Config& config, const graph::Graph& graph, backend::Backend& backend,
                step::Team& team = step::Team::OfOne());

  bool Due(std::int64_t step) const override;
  void Begin(std::int64_t step, const backend::Pass& pass) override;
  void Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) override;
  void EndMicroBatch(const step::MicroBatch&) override;
  void End() override;

  // The rows of the last step that was due, by scenario, layer and operand. The caller fills in
  // step and epoch.
  const std::vector<telemetry::WhatIfBlockRow>& rows() const { return rows_; }

 private:
  struct Asked {
    std::string scenario;
    BlockFormat format;
  };
  struct Matmul {
    std::string layer;
    OperandLayer is;
    bool has_dx = false;
    double scale = 1;  // S of its dy
  };
  // Adds the operands made from `values` to the counts of a layer. `team`: the processes whose rows
  // are concatenated along the batch.
  void Count(std::size_t matmul, const std::vector<Operand>& operands,
             const std::function<OperandPlace(Operand)>& place_of, bool bf16,
             const std::vector<float>& values, float amax, step::Team& team);
  BlockCounts& CountsOf(std::size_t asked, std::size_t matmul, Operand operand) {
    return counts_[(asked * matmuls_.size() + matmul) * kOperands + IndexOf(operand)];
  }
  bool Exists(const Matmul& matmul, Operand operand) const;
  // Brings the counts of a layer's dy to another scale, which becomes that of the next ones.
  void Rescale(std::size_t matmul, double scale);
  void RescaleHead(std::size_t point, double scale);
  void Join();
  telemetry::WhatIfBlockRow RowOf(std::size_t asked, const std::string& layer, const char* tensor,
                                  double scale, const BlockCounts& counts) const;

  const config::Config& config_;
  const graph::Graph& graph_;
  backend::Backend& backend_;
  step::Team& team_;
  std::vector<Asked> asked_;
  std::vector<Matmul> matmuls_;
  std::map<std::string, std::size_t> by_layer_;
  std::vector<BlockCounts> counts_;
  // By point of graph_.judged_operands().
  std::vector<BlockCounts> of_heads_;
  std::vector<double> head_scales_;  // S that they carry
  std::vector<telemetry::WhatIfBlockRow> rows_;
};

}  // namespace ada::record
