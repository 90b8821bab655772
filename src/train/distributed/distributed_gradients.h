// The gradients of a batch of which every process computed a part: handed to the sum while the
// backward pass goes on, and back as sums. The backend sums them where it can, else this does on
// the host.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "backend/gradient_sums.h"
#include "graph/graph.h"
#include "parallel/gradient_sums.h"
#include "train/distributed/team.h"

namespace ada::train {

class DistributedGradients final : public graph::GradientTaker {
 public:
  // All must outlive it.
  DistributedGradients(const config::ParallelConfig& config, Team& team, graph::Graph& graph,
                       backend::Backend& backend);

  // The scale of the loss, which gradients carry where they travel in 16 bits.
  void Begin(float loss_scale) { scale_ = narrow_ ? loss_scale : 1; }
  void Take(const std::vector<int>& parameters) override;
  bool sums_in_pass() const override { return in_pass_ != nullptr; }
  // After the last Take: puts sums where the parts were; on the host it waits for them.
  void Finish() override;
  // Running statistics of batch norms become the means over processes, by their images; nothing
  // where all have the same, or the backend has done so. rows: this process's; whole: of all.
  void JoinStatistics(std::int64_t rows, std::int64_t whole);

  // parallel.gradients other than fp32: what the transport lost of the last batch's gradient of a
  // weight, in all processes; counts of `layer.weight` are those of its layer.
  struct Lost {
    std::string layer;
    TensorStats stats;
  };
  bool narrow() const { return narrow_; }
  NumberFormat format() const { return format_; }
  float scale() const { return scale_; }
  std::vector<Lost> LostInTransport();

  // For sums, on the host; where the backend makes them it does so during other work.
  double waited_seconds() const { return on_host_ ? on_host_->waited_seconds() : 0; }
  std::int64_t bytes() const { return on_host_ ? on_host_->bytes() : in_pass_->bytes(); }
  std::int64_t buckets() const { return on_host_ ? on_host_->buckets() : in_pass_->buckets(); }

 private:
  const Tensor& GradientOf(int place) const;
  backend::GradientSumsSpec SpecOf(const config::ParallelConfig& config) const;
  void TakeOnHost(int place);

  Team& team_;
  graph::Graph& graph_;
  backend::Backend& backend_;
  const NumberFormat format_;
  const bool narrow_;
  const std::vector<int> order_;                    // parameters, as gradients are completed
  std::unique_ptr<backend::GradientSums> in_pass_;  // null: on the host
  std::optional<parallel::GradientSums> on_host_;
  float scale_ = 1;
  std::size_t taken_ = 0;
  std::vector<float> host_;
};

}  // namespace ada::train
