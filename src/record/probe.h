// Probe steps: the tensors of a step compared with the same tensors computed in fp32 from the same
// masters and batch. Shows the real cost of rounding, including values lost further upstream.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "step/step_observer.h"
#include "step/team.h"
#include "telemetry/run_logs.h"

namespace ada::record {

// Owned by the session and called by the trainer in due steps; StepLog reads rows() afterwards. A
// due step costs a second forward and backward pass and a copy of every tensor that is compared.
class Probe : public step::StepObserver {
 public:
  // The fp32 graph shares masters with `graph`; its running statistics are put back after each
  // probe. `image`: of the training data. The rows are those of all processes of
  // the team. All must outlive the probe.
  Probe(const config::Config& config, const Shape& image, graph::Graph& graph,
        backend::Backend& backend, step::Team& team = step::Team::OfOne());
  ~Probe() override;

  bool Due(std::int64_t step) const override;
  void Begin(std::int64_t step, const backend::Pass& pass) override;
  void Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) override;
  void EndMicroBatch(const step::MicroBatch& batch) override;
  void End() override;

  // The rows of the last step that was due: the tensors of log.statistics, in the order of the
  // graph's roundings; gradients are those of all micro-batches together. The caller fills in step
  // and epoch.
  const std::vector<telemetry::ProbeRow>& rows() const { return rows_; }

 private:
  using Name = std::pair<std::string, std::string>;  // layer, tensor
  // Sums over the values of one tensor.
  struct Sums {
    std::int64_t numel = 0, nonzero = 0, lost = 0;
    double error_square = 0, fp32_square = 0, run_square = 0, product = 0;
    void Add(double run, double reference);
    void Add(const Sums& more);
    void Fill(telemetry::ProbeRow& row) const;
  };
  // A copy of a tensor of the run, in memory order.
  struct TensorCopy {
    std::vector<float> values;
    float scale = 1;
  };
  class Fp32Observer;

  bool Wants(const std::string& tensor) const;
  void Compare(const graph::ObservedTensor& seen, const backend::Pass& pass);
  void JoinSums();
  void CompareParameters(const graph::RoundingPoint& point, Sums& sums);
  void SaveStatistics();
  void RestoreStatistics();

  const config::Config& config_;
  graph::Graph& graph_;
  backend::Backend& backend_;
  step::Team& team_;
  std::unique_ptr<graph::Graph> fp32_;
  std::unique_ptr<Fp32Observer> fp32_observer_;
  backend::Pass first_pass_;
  std::map<Name, TensorCopy> copies_;
  std::map<Name, Sums> sums_;
  std::vector<std::vector<float>> statistics_;  // running ones, by parameter
  std::vector<telemetry::ProbeRow> rows_;
};

}  // namespace ada::record
