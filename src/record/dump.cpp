// See dump.h.
#include "record/dump.h"

#include <algorithm>

#include "backend/formulas.h"
#include "error.h"
#include "io/file.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "record/dumped_operands.h"
#include "step/step_observer.h"
#include "step/weight_values.h"

namespace ada::record {
namespace {

const char* EventPrefix(const config::Config& config) {
  return config.log.dump_on == config::DumpOn::kSkip ? "skip" : "alert";
}

}  // namespace

Dump::Dump(const config::Config& config, std::string folder, const graph::Graph& graph,
           backend::Backend& backend, step::Team& team)
    : config_(config),
      folder_(std::move(folder)),
      graph_(graph),
      backend_(backend),
      team_(team),
      operands_(graph, team) {}

// A dump that waits for an event observes every step, since what leads to the event is known only
// afterwards.
bool Dump::Due(std::int64_t step) const {
  return step::IsDue(config_.log.dump_every, step) || Waits();
}

// Not before the first step: until then the folder may hold files of a run to be overwritten.
bool Dump::Waits() const {
  if (!waits_) waits_ = config_.log.dump_on != config::DumpOn::kNever && !AgreedOn(HasEventFile());
  return *waits_;
}

// The file of an earlier process of the run counts.
bool Dump::HasEventFile() const {
  const std::string folder = folder_ + "/dump";
  if (!IsFolder(folder)) return false;
  const std::vector<std::string> names = ListFolder(folder);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name.starts_with(EventPrefix(config_));
  });
}

// Returns what the first process, which writes, knows, so that all observe the same steps.
bool Dump::AgreedOn(bool mine) const {
  return parallel::GatherAll(team_.all(), std::int64_t{mine}).front() != 0;
}

bool Dump::Matches(const std::string& layer) const {
  const auto& globs = config_.log.dump;
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return GlobMatch(glob, layer); });
}

bool Dump::IsLinear(const std::string& layer) const {
  const auto& layers = graph_.layers();
  return std::any_of(layers.begin(), layers.end(), [&](const graph::LayerRow& row) {
    return row.name == layer && row.kind == backend::LinearSpec::kKind;
  });
}

void Dump::Begin(std::int64_t step, const backend::Pass& pass) {
  step_ = step;
  items_.clear();
  operands_.Begin(pass);
  AddWeights(pass);
}

// Weights are rounded here again from the masters, as the backend has rounded its copies: these lie
// in layouts of its own.
void Dump::AddWeights(const backend::Pass& pass) {
  const bool stochastic = config::IsStochastic(config_.precision.rounding);
  for (const graph::LayerRow& layer : graph_.layers()) {
    if (!Takes(layer.name)) continue;
    const graph::Parameter* weight = step::WeightOf(graph_, layer.name);
    const graph::RoundingPoint* copy = weight != nullptr ? step::CopyOf(graph_, *weight) : nullptr;
    if (copy == nullptr) continue;
    std::vector<float> values = step::RoundedWeights(*weight, *copy, stochastic, pass, backend_);
    AddScales(layer.name, operands_.OfWeight(layer.name, *copy, values), 1);
    items_[layer.name + ".w"] = {weight->dims, std::move(values), FormatName(copy->format)};
  }
}

void Dump::AddScales(const std::string& layer, const std::vector<DumpedScales>& all, double scale) {
  for (const DumpedScales& of : all) {
    Item& item = items_[layer + "." + of.operand + ".scales"];
    item = {of.scales.dims, of.scales.values, of.format, scale, layer, of.amax};
    if (!of.row_amaxes) continue;
    item.amax.reset();
    items_[layer + "." + of.operand + ".amax"] = {of.row_amaxes->dims, of.row_amaxes->values,
                                                  "fp32", scale, layer};
  }
}

// A tensor of a later micro-batch replaces that of an earlier one.
void Dump::Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) {
  if (!Takes(seen.layer)) return;
  const Shape& shape = seen.value.shape;
  std::vector<float> values(static_cast<std::size_t>(pass.rows * shape.per_image()));
  backend_.Read(seen.value, pass.rows, values.data());
  AddScales(seen.layer, operands_.OfBatch(seen, pass, values),
            seen.scale != nullptr ? static_cast<double>(*seen.scale) : 1);
  const std::int64_t rows =
      GatherRows(values, shape.per_image(), seen.scale != nullptr ? *seen.scale : 1.0F);
  Item& item = items_[seen.layer + "." + seen.tensor];
  // A tensor of one pixel is written flat where the layer is linear; a convolution's stays
  // four-dimensional.
  const bool flat = shape.h == 1 && shape.w == 1 && (seen.layer == "loss" || IsLinear(seen.layer));
  item.dims = flat ? std::vector<std::int64_t>{rows, shape.c}
                   : std::vector<std::int64_t>{rows, shape.c, shape.h, shape.w};
  item.format = FormatName(seen.value.format);
  item.scale = seen.scale != nullptr ? static_cast<double>(*seen.scale) : 1;
  item.values = AsPyTorch(values, shape);
}

// `values` become the rows, of `per_row` values each, of all processes, one process's after the
// other's, with the scale of the first; a process may have none. Returns how many rows that are.
std::int64_t Dump::GatherRows(std::vector<float>& values, std::int64_t per_row, float scale) const {
  const auto size = static_cast<std::size_t>(per_row);
  const auto rows = static_cast<std::int64_t>(values.size() / size);
  const std::vector<std::int64_t> counts = parallel::GatherAll(team_.all(), rows);
  const std::vector<float> scales = parallel::GatherAll(team_.all(), scale);
  const auto most = static_cast<std::size_t>(*std::max_element(counts.begin(), counts.end()));
  values.resize(most * size);
  values = parallel::GatherAll(team_.all(), std::move(values));
  std::size_t end = static_cast<std::size_t>(counts[0]) * size;
  for (std::size_t rank = 1; rank < counts.size(); ++rank) {
    const float factor = scales[0] / scales[rank];
    const float* from = values.data() + rank * most * size;
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts[rank]) * size; ++i)
      values[end++] = factor == 1 ? from[i] : from[i] * factor;
  }
  values.resize(end);
  return static_cast<std::int64_t>(end / size);
}

bool Dump::ChoosesScale(const std::string& layer) const {
  const auto& scales = graph_.scales();
  return std::any_of(scales.begin(), scales.end(), [&](const graph::ScalePoint& point) {
    return point.scaler != nullptr && point.layer == layer;
  });
}

// Adds the properties of a layer that the tensors' shapes do not show.
void Dump::Describe(const graph::LayerRow& layer,
                    std::map<std::string, std::string>& metadata) const {
  metadata["kind:" + layer.name] = layer.kind;
  metadata["chooses_scale:" + layer.name] = ChoosesScale(layer.name) ? "true" : "false";
  if (layer.kind != "conv2d" && layer.kind != "conv_transpose2d") return;
  metadata["stride:" + layer.name] =
      std::to_string(layer.stride[0]) + "x" + std::to_string(layer.stride[1]);
  metadata["groups:" + layer.name] = std::to_string(layer.groups);
}

// From x as it is in the dump: [n, c, h, w].
void Dump::AddFactors(const graph::LayerRow& batch_norm) {
  const auto x = items_.find(batch_norm.name + ".x");
  const graph::Parameter* gamma = step::WeightOf(graph_, batch_norm.name);
  ADA_CHECK(x != items_.end() && gamma != nullptr);
  const std::vector<float>& values = x->second.values;
  const std::int64_t channels = batch_norm.output.c;
  const std::int64_t pixels = batch_norm.output.h * batch_norm.output.w;
  std::vector<float> factors = step::HostValues(gamma->value, backend_);
  for (std::int64_t c = 0; c < channels; ++c) {
    // Two passes in double arithmetic: the variance as the difference of two large sums would lose
    // its digits.
    double count = 0, sum = 0, squares = 0;
    const auto each = [&](const auto& visit) {
      for (auto i = static_cast<std::size_t>(c * pixels); i < values.size();
           i += static_cast<std::size_t>(channels * pixels))
        for (std::size_t p = 0; p < static_cast<std::size_t>(pixels); ++p)
          visit(static_cast<double>(values[i + p]));
    };
    each([&](double v) { sum += v, count += 1; });
    each([&](double v) { squares += (v - sum / count) * (v - sum / count); });
    factors[static_cast<std::size_t>(c)] *=
        backend::InverseDeviation(squares / count, batch_norm.eps);
  }
  items_[batch_norm.name + ".factor"] = {{channels}, std::move(factors), FormatName(kFp32)};
}

void Dump::EndMicroBatch(const step::MicroBatch& batch) {
  if (!Waits() || config_.task == Task::kLanguage) return;
  const Shape& image = graph_.input_shape();
  const auto all_of = [&](const auto* mine, std::int64_t per_row) {
    std::vector<float> values(mine, mine + batch.pass.rows * per_row);
    GatherRows(values, per_row, 1);
    return values;
  };
  const std::vector<float> images = all_of(batch.rows.images, image.per_image());
  const auto rows = static_cast<std::int64_t>(images.size()) / image.per_image();
  Item& item = items_["batch.images"];
  item.dims = {rows, image.c, image.h, image.w};
  item.values = AsPyTorch(images, image);
  item.format = FormatName(kFp32);
  if (config_.task != Task::kClassification) return;
  Item& of_images = items_["batch.labels"];
  of_images.dims = {rows};
  of_images.values = all_of(batch.rows.targets.labels, 1);
  of_images.format = FormatName(kFp32);
}

// Weight gradients are read here: they are complete, and not clipped yet. Only the first process
// goes on, since all that is collective has been done in Observe and EndMicroBatch.
void Dump::End() {
  if (!team_.writes()) return items_.clear();
  for (const graph::RoundingPoint& point : graph_.roundings()) {
    if (point.tensor != "dw" || !Takes(point.layer)) continue;
    const graph::Parameter& weight = *step::WeightOf(graph_, point.layer);
    items_[point.layer + ".dw"] = {weight.dims, step::HostValues(weight.gradient, backend_),
                                   FormatName(point.format), 1};
  }
  for (const graph::LayerRow& layer : graph_.layers())
    if (Takes(layer.name) && layer.kind == backend::BatchNormSpec::kKind &&
        ChoosesScale(layer.name))
      AddFactors(layer);
  if (step::IsDue(config_.log.dump_every, step_))
    WriteFile("step", [this](const std::string& layer) { return Matches(layer); });
  // A dump that waits keeps the tensors until Conclude, when the step's events are known.
  if (!Waits()) items_.clear();
}

// All processes call this, and agree on whether the dump goes on waiting.
void Dump::Conclude(const step::StepNews& news) {
  if (!Waits()) return;
  const bool on_skip = config_.log.dump_on == config::DumpOn::kSkip;
  const bool happened = on_skip ? news.skip : news.alert;
  if (happened) {
    const std::string& named = on_skip ? news.skip_layer : news.alert_layer;
    WriteFile(EventPrefix(config_), [&named](const std::string& layer) {
      return named.empty() || layer == named || layer == "batch";
    });
  }
  waits_ = !AgreedOn(happened);
  items_.clear();
}

// The tensors of the layers that are wanted, as <folder>/dump/<prefix>-<step>.safetensors.
template <class Wanted>
void Dump::WriteFile(const char* prefix, const Wanted& wanted) {
  SafetensorsWriter writer;
  std::map<std::string, std::string> metadata = {{"step", std::to_string(step_)}};
  for (const graph::LayerRow& layer : graph_.layers())
    if (wanted(layer.name)) Describe(layer, metadata);
  for (const auto& [name, item] : items_) {
    if (!wanted(item.layer.empty() ? name.substr(0, name.rfind('.')) : item.layer)) continue;
    writer.Add(name, item.dims, item.values);
    metadata["format:" + name] = item.format;
    metadata["scale:" + name] = ShortestText(item.scale);
    if (item.amax) metadata["amax:" + name] = ShortestText(static_cast<double>(*item.amax));
  }
  writer.SetMetadata(std::move(metadata));
  const std::string folder = folder_ + "/dump";
  CreateFolder(folder);
  writer.WriteAtomically(folder + "/" + prefix +
                         Formatted("-%08lld.safetensors", static_cast<long long>(step_)));
}

}  // namespace ada::record
