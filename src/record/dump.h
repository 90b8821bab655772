// Dumps: the tensors of some layers in some steps as safetensors, for `inspect` and for Python.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "record/dumped_operands.h"
#include "step/step_observer.h"
#include "step/team.h"

namespace ada::record {

// Writes <folder>/dump/step-00000100.safetensors with LAYER.x y w dy dx dw of the layers that match
// log.dump (`loss`: its dx, the logit gradient): F32, in PyTorch's layouts ([n, c, h, w]; a linear
// layer's flat tensors [n, c]), of the last micro-batch (dw: of all), values as they were stored:
// they carry their scale, which the metadata have as "scale:LAYER.dy"; formats as
// "format:LAYER.dy"; of each layer also its kind ("kind:LAYER"), whether a policy chooses its scale
// ("chooses_scale:LAYER", true or false) and a convolution's "stride:LAYER" ("2x2") and
// "groups:LAYER". For a batch norm whose scale is chosen also LAYER.factor, [c]: gamma / sqrt(var +
// eps), which is to its rule what w is to a convolution's.
//
// For each operand in a block-scaled format (precision.operands) also LAYER.forward.x.scales and so
// on: the stored scales of its blocks, [groups or taps, lines, blocks of a line], with
// "format:LAYER.forward.x.scales". A format that also has a per-tensor scale adds the largest
// magnitude which that is computed from, "amax:LAYER.forward.x.scales"; one with a scale for each
// row adds those of the rows as the tensor LAYER.forward.x.amax, [groups or taps, lines, 1].
//
// With log.dump_on the first step with that event also writes
// <folder>/dump/skip-00000100.safetensors (or alert-...): the same tensors of the layer that the
// event names, among them its inputs, and the batch: batch.images [n, c, h, w] as the network got
// them (of the last micro-batch, of all processes), and where an image has one label batch.labels,
// [n]; a batch of tokens is not written. Until then every step is observed.
class Dump : public step::StepObserver {
 public:
  // All must outlive the dump. OutputError where a file cannot be written. The first
  // process of the team writes the images of all, in the order of the batch.
  Dump(const config::Config& config, std::string folder, const graph::Graph& graph,
       backend::Backend& backend, step::Team& team = step::Team::OfOne());

  bool Due(std::int64_t step) const override;
  void Begin(std::int64_t step, const backend::Pass& pass) override;
  void Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) override;
  void EndMicroBatch(const step::MicroBatch& batch) override;
  void End() override;
  void Conclude(const step::StepNews& news) override;

 private:
  // A tensor of the file with its metadata.
  struct Item {
    std::vector<std::int64_t> dims;
    std::vector<float> values;
    std::string format;
    double scale = 1;
    std::string layer = {};          // empty: the name without its last part
    std::optional<float> amax = {};  // of block scales
  };
  bool Matches(const std::string& layer) const;
  bool Waits() const;  // for the event of log.dump_on
  bool HasEventFile() const;
  bool AgreedOn(bool mine) const;
  bool Takes(const std::string& layer) const { return Waits() || Matches(layer); }
  template <class Wanted>
  void WriteFile(const char* prefix, const Wanted& wanted);
  void AddScales(const std::string& layer, const std::vector<DumpedScales>& all, double scale);
  std::int64_t GatherRows(std::vector<float>& values, std::int64_t per_row, float scale) const;
  bool IsLinear(const std::string& layer) const;
  void AddWeights(const backend::Pass& pass);
  bool ChoosesScale(const std::string& layer) const;
  void Describe(const graph::LayerRow& layer, std::map<std::string, std::string>& metadata) const;
  void AddFactors(const graph::LayerRow& batch_norm);

  const config::Config& config_;
  const std::string folder_;
  const graph::Graph& graph_;
  backend::Backend& backend_;
  step::Team& team_;
  DumpedOperands operands_;
  std::int64_t step_ = 0;
  mutable std::optional<bool> waits_;  // unset: not asked yet
  std::map<std::string, Item> items_;  // by LAYER.tensor
};

}  // namespace ada::record
