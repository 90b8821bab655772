// Sums over processes of the gradients of a batch that they share: each gradient is handed over
// while the backward pass goes on, and replaced by the sum. The backend sums where it can,
// otherwise this class does so on the host. In a run of one process nothing is done.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "backend/communicators.h"
#include "graph/graph.h"
#include "parallel/gradient_sums.h"
#include "step/team.h"

namespace ada::step {

// fp8_lm scales gradients of matrices: weights of two axes or more.
inline bool IsMatrix(const graph::Parameter& parameter) { return parameter.dims.size() > 1; }

// One for each session. For every batch the trainer calls Begin, gives reducer() to the last
// backward pass, which calls Reduce and Finish, and then calls FinishOnHost. With one process all
// of this does nothing.
class DistributedGradients final : public graph::GradientReducer {
 public:
  // All must outlive it.
  DistributedGradients(const config::Config& config, Team& team, graph::Graph& graph,
                       backend::Backend& backend);

  // Whether this process computes only a part of a sum (backend::Pass::part).
  bool are_parts() const { return are_parts_; }
  // Call it before a batch's passes. loss_scale: kept in gradients that travel in 16 bits.
  void Begin(float loss_scale);
  // For the last backward pass of a batch; null: nothing is to be summed.
  graph::GradientReducer* reducer() { return are_parts_ ? this : nullptr; }
  void Reduce(const std::vector<int>& parameters) override;
  bool sums_in_pass() const override { return in_pass_ != nullptr; }
  // After the last Reduce: replaces the parts by the sums; on the host it waits for them.
  void Finish() override;
  // To be called after the last pass of a batch, of whose `whole` rows this process had `rows`. If
  // the host sums, replaces gradients and running statistics by those of all processes and returns
  // true. If the backend has done so, does nothing and returns false.
  bool FinishOnHost(const backend::Pass& pass, std::int64_t rows, std::int64_t whole);

  // Hands over all gradients at once, where no backward pass does.
  void ReduceAll() {
    if (are_parts_) Reduce(order_);
  }
  // For the next ReduceAll: the scale by which each gradient is multiplied while it is summed, in
  // their order (scaling fp8_lm). The sums are multiplied with its inverse.
  void CarryScales(std::vector<float> scales) { scales_ = std::move(scales); }
  // How many values of each of these sums have the largest magnitude of their format.
  const std::vector<std::int64_t>& saturated() const { return saturated_; }
  Team& team() { return team_; }

  backend::Backend& backend() { return backend_; }
  // Parameters as their gradients are completed.
  const std::vector<int>& order() const { return order_; }
  const graph::Parameter& ParameterAt(std::size_t place) const;

  // Where sums between processes are not all fp32: what rounding lost of the last batch's gradients
  // of a layer, over all processes.
  struct Lost {
    std::string layer;
    TensorStats stats;
    float scale = 1;  // of the gradients' own, which the counts do not carry
  };
  struct Transport {
    std::vector<Lost> lost;
    NumberFormat format;
    float scale = 1;  // that the gradients carried
  };
  bool narrow() const { return narrow_; }
  Transport LostInTransport();
  // Counts of single gradients, in their order, as those of layers and of all processes
  // (collective). scales: of each, empty: none; a layer has that of its largest gradient.
  std::vector<Lost> ByLayer(const std::vector<TensorStats>& mine,
                            const std::vector<float>& scales = {});

  bool on_host() const { return on_host_.has_value(); }
  // Time spent waiting for sums on the host; the backend makes them during other work.
  double waited_seconds() const { return on_host_ ? on_host_->waited_seconds() : 0; }
  std::int64_t bytes() const { return on_host_ ? on_host_->bytes() : in_pass_->bytes(); }
  std::int64_t buckets() const { return on_host_ ? on_host_->buckets() : in_pass_->buckets(); }

 private:
  const Tensor& GradientOf(int place) const;
  void JoinStatistics(std::int64_t rows, std::int64_t whole);
  backend::GradientSumsSpec SpecOf(const config::ParallelConfig& config) const;
  void TakeOnHost(int place);
  void TakeSum(int place);

  Team& team_;
  graph::Graph& graph_;
  backend::Backend& backend_;
  const bool are_parts_;
  const bool forgets_counts_;     // of gradients of the batch before, which several passes count
  const NumberFormat format_;     // of what travels
  const std::vector<int> order_;  // parameters, as gradients are completed
  const parallel::Reduction reduction_;
  const bool narrow_;
  std::unique_ptr<backend::GradientSums> in_pass_;  // null: on the host, or nothing to be summed
  std::optional<parallel::GradientSums> on_host_;
  float scale_ = 1;
  std::vector<float> scales_;  // by gradient; empty: scale_ for all
  std::vector<std::int64_t> saturated_;
  std::size_t taken_ = 0;
  std::vector<float> host_;
};

}  // namespace ada::step
