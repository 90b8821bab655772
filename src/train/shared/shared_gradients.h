// The gradients of a batch of which every process computed a part: handed to the sum while the
// backward pass goes on, and back as sums.
#pragma once
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "parallel/gradient_sums.h"
#include "train/shared/team.h"

namespace ada::train {

class SharedGradients final : public graph::GradientTaker {
 public:
  // All must outlive it.
  SharedGradients(const config::ParallelConfig& config, Team& team, graph::Graph& graph,
                  backend::Backend& backend);

  // The scale of the loss, which gradients carry where they travel in 16 bits.
  void Begin(float loss_scale) { scale_ = narrow_ ? loss_scale : 1; }
  void Take(const std::vector<int>& parameters) override;
  // After the backward pass: waits, and puts sums where the parts were.
  void Finish();
  // Running statistics of batch norms become the means over processes, by their images; nothing
  // where all have the same. rows: this process's; whole: of all.
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

  double waited_seconds() const { return sums_.waited_seconds(); }
  std::int64_t bytes() const { return sums_.bytes(); }
  std::int64_t buckets() const { return sums_.buckets(); }

 private:
  const Tensor& GradientOf(int place) const;

  Team& team_;
  graph::Graph& graph_;
  backend::Backend& backend_;
  const NumberFormat format_;
  const bool narrow_;
  const std::vector<int> order_;  // parameters, as gradients are completed
  parallel::GradientSums sums_;
  float scale_ = 1;
  std::size_t taken_ = 0;
  std::vector<float> host_;
};

}  // namespace ada::train
