// evaluate.recompute_batch_norm: ChainerCV's recalculation as recorded, and the statistics of the
// training images themselves.
#include "run/evaluate/norm_statistics.h"

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "config/load.h"
#include "golden_vision.h"
#include "io/tensor_files/safetensors.h"
#include "step/specs.h"
#include "step/weight_values.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Values = std::vector<float>;

// One recorded case, as a network and a data set of this program.
class Recalculation {
 public:
  Recalculation(const std::string& folder, const GoldenRow& row)
      : file_(SafetensorsFile::Open(folder + "/bn_recalculation.safetensors")),
        case_(row.at("case")) {
    WriteImages();
    config_ = config::LoadText(Text(row), "test", {}).config;
    const data::DatasetInfo info = run::InspectData(config_);
    config_ = run::Completed(config_, info);
    data_ = run::ReadData(config_, info);
    policy_ = scaling::MakePolicy(config_.scaling);
    graph_ = graph::Graph::Build(step::TrainGraph(config_, data_.image, *policy_), *backend_);
    for (const graph::Parameter& p : graph_->parameters()) {
      const Values values = Start(p.name);
      backend_->Upload(p.value.data, values.data(), p.value.bytes());
    }
  }

  // What stands where the running averages stood.
  Values Recomputed(const std::string& parameter, config::BatchNormStatistics statistics) {
    config_.evaluate.batch_norm = statistics;
    run::NormStatistics norms(config_, data_, *graph_, *backend_);
    norms.Recompute();
    const Values values = Running(parameter);
    norms.Restore();
    CHECK(Running(parameter) == Start(parameter));
    return values;
  }
  // "conv1_bn.avg_mean": as recorded.
  Values Recorded(const std::string& name) const { return file_.ReadF32(case_ + "." + name); }

  // Statistics of the first convolution's outputs, by the definition: mean and variance of each
  // batch, averaged with its images.
  std::pair<std::vector<double>, std::vector<double>> FirstStatistics() const {
    const Values images = Recorded("imgs"), weights = Recorded("conv1.W");
    const auto& shape = file_.Find(case_ + ".imgs")->shape;
    const std::int64_t n = shape[0], h = shape[2], w = shape[3];
    const std::int64_t k = file_.Find(case_ + ".conv1.W")->shape[0];
    const int batch = config_.data.batch_size;
    std::vector<double> means(static_cast<std::size_t>(k)), variances(means.size());
    for (std::int64_t c = 0; c < k; ++c) {
      for (std::int64_t first = 0; first < n; first += batch) {
        const std::int64_t rows = std::min<std::int64_t>(batch, n - first);
        double sum = 0, squares = 0;
        for (std::int64_t i = first; i < first + rows; ++i)
          for (std::int64_t p = 0; p < h * w; ++p) {
            const double y = Conv(images, weights, shape, i, c, p / w, p % w);
            sum += y, squares += y * y;
          }
        const auto count = static_cast<double>(rows * h * w);
        const double mean = sum / count, share = static_cast<double>(rows) / static_cast<double>(n);
        means[static_cast<std::size_t>(c)] += share * mean;
        variances[static_cast<std::size_t>(c)] +=
            share * (squares - count * mean * mean) / (count - 1);
      }
    }
    return {means, variances};
  }

 private:
  static double Conv(const Values& images, const Values& weights,
                     const std::vector<std::int64_t>& shape, std::int64_t image, std::int64_t out,
                     std::int64_t row, std::int64_t column) {
    const std::int64_t channels = shape[1], h = shape[2], w = shape[3];
    double y = 0;
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t i = -1; i <= 1; ++i)
        for (std::int64_t j = -1; j <= 1; ++j) {
          if (row + i < 0 || row + i >= h || column + j < 0 || column + j >= w) continue;
          y += double(images[((image * channels + c) * h + row + i) * w + column + j]) *
               double(weights[((out * channels + c) * 3 + i + 1) * 3 + j + 1]);
        }
    return y;
  }

  // Images as [n, h, w, c], with labels that nobody reads.
  void WriteImages() {
    const Values planes = Recorded("imgs");
    const auto& shape = file_.Find(case_ + ".imgs")->shape;
    const std::int64_t n = shape[0], c = shape[1], pixels = shape[2] * shape[3];
    Values images(planes.size());
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < c; ++k)
        for (std::int64_t p = 0; p < pixels; ++p)
          images[(i * pixels + p) * c + k] = planes[(i * c + k) * pixels + p];
    std::vector<std::uint8_t> labels(static_cast<std::size_t>(n));
    labels.back() = 1;
    SafetensorsWriter writer;
    for (const std::string split : {"train", "test"}) {
      writer.Add(split + ".images", {n, shape[2], shape[3], c}, images);
      writer.Add(split + ".labels", DType::kU8, {n}, std::as_bytes(std::span(labels)));
    }
    writer.WriteAtomically(folder_ / "images.safetensors");
  }

  std::string Text(const GoldenRow& row) const {
    const auto channels = [this](const std::string& conv) {
      return std::to_string(file_.Find(case_ + "." + conv + ".W")->shape[0]);
    };
    const std::string norm = "kind: batch_norm, eps: " + row.at("eps") +
                             ", momentum: " + std::to_string(1 - std::stod(row.at("decay"))) +
                             "}\n";
    const std::string conv = "kind: conv2d, kernel: 3, padding: 1, bias: false, channels: ";
    return "device: {kind: cpu, threads: 2}\ndata: {dataset: tensors, path: " +
           (folder_ / "images.safetensors") +
           ", normalize: none, drop_last: false, batch_size: " + row.at("batchsize") +
           "}\nmodel:\n  classes: " + channels("conv2") + "\n  layers:\n" + "    - {name: conv1, " +
           conv + channels("conv1") + "}\n    - {name: conv1_bn, " + norm +
           "    - {name: relu1, kind: relu}\n    - {name: conv2, " + conv + channels("conv2") +
           "}\n    - {name: conv2_bn, " + norm + "    - {name: pool, kind: global_avg_pool}\n" +
           "precision: {format: fp32}\n";
  }

  // What a parameter is before.
  Values Start(const std::string& parameter) const {
    const std::size_t dot = parameter.find('.');
    const std::string layer = parameter.substr(0, dot), what = parameter.substr(dot + 1);
    if (what == "weight") return Recorded(layer + (layer.ends_with("_bn") ? ".gamma" : ".W"));
    if (what == "bias") return Recorded(layer + ".beta");
    return Recorded(layer + (what == "running_mean" ? ".avg_mean_before" : ".avg_var_before"));
  }

  Values Running(const std::string& parameter) const {
    for (const graph::Parameter& p : graph_->parameters())
      if (p.name == parameter) return step::HostValues(p.value, *backend_);
    FAIL("no parameter " << parameter);
    return {};
  }

  const TempFolder folder_;
  SafetensorsFile file_;
  std::string case_;
  config::Config config_;
  run::RunData data_;
  std::unique_ptr<backend::Backend> backend_ = backend::cpu::MakeCpuBackend(2);
  std::unique_ptr<scaling::Policy> policy_;
  std::unique_ptr<graph::Graph> graph_;
};

template <class A, class B>
void CheckNear(const std::vector<A>& found, const std::vector<B>& wanted, double tolerance) {
  REQUIRE(found.size() == wanted.size());
  double largest = 0;
  for (const B value : wanted) largest = std::max(largest, std::abs(double(value)));
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(double(found[i]) - double(wanted[i])) <= tolerance * largest);
}

TEST_SUITE("cpu") {
  TEST_CASE("reference: the recalculation of ChainerCV's example") {
    for (const std::string& folder : VisionFolders("ops")) {
      if (!std::filesystem::exists(folder + "/bn_recalculation.csv")) continue;
      for (const GoldenRow& row : ReadTable(folder + "/bn_recalculation.csv").rows) {
        CAPTURE(folder);
        CAPTURE(row.at("case"));
        Recalculation recorded(folder, row);
        for (const std::string norm : {"conv1_bn", "conv2_bn"})
          for (const std::string what : {"mean", "var"})
            CheckNear(recorded.Recomputed(norm + ".running_" + what,
                                          config::BatchNormStatistics::kReference),
                      recorded.Recorded(norm + ".avg_" + what), 1e-6);
      }
    }
  }

  TEST_CASE("by default the statistics are the images', whatever the averages of training are") {
    for (const GoldenRow& row : ReadGolden("ops/bn_recalculation.csv").rows) {
      CAPTURE(row.at("case"));
      Recalculation recorded(std::string(ADA_SOURCE_DIR) + "/tests/golden/ops", row);
      const auto recomputed = config::BatchNormStatistics::kRecomputed;
      const auto [means, variances] = recorded.FirstStatistics();
      CheckNear(recorded.Recomputed("conv1_bn.running_mean", recomputed), means, 1e-6);
      CheckNear(recorded.Recomputed("conv1_bn.running_var", recomputed), variances, 1e-6);
      if (row.at("case") != "one_batch") continue;
      // One batch moves the running average a tenth of the way to what is to be found.
      for (const std::string what : {"mean", "var"}) {
        Values batch = recorded.Recorded("conv2_bn.avg_" + what);
        const Values before = recorded.Recorded("conv2_bn.avg_" + what + "_before");
        for (std::size_t c = 0; c < batch.size(); ++c)
          batch[c] = static_cast<float>((double(batch[c]) - 0.9 * double(before[c])) / 0.1);
        CheckNear(recorded.Recomputed("conv2_bn.running_" + what, recomputed), batch, 1e-5);
      }
    }
  }

  // An identity between them changes nothing, and its constants are no statistics.
  TEST_CASE("constants of affine layers are left as they are") {
    const TempFolder folder;
    const auto evaluation = [&](const std::string& name, const std::string& identity) {
      const auto run = WriteConfig(folder, name, R"(
data: {dataset: synthetic, batch_size: 8, synthetic: {train: 16, test: 8}}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: bn1, kind: batch_norm}
)" + identity + R"(    - {name: pool, kind: global_avg_pool}
    - {name: fc, kind: linear, features: 10}
train: {max_steps: 2}
evaluate: {recompute_batch_norm: true}
)");
      ADA_REQUIRE_EXIT(Run(run, folder.path()), 0);
      return ReadBytes(folder / (name + "/evaluation.csv"));
    };
    CHECK(evaluation("with", "    - {name: same, kind: affine, factor: 1, offset: 0}\n") ==
          evaluation("without", ""));
  }

  // The second of two batches overflows fp16 in the first of two channels.
  TEST_CASE("a batch whose statistics are not finite is left out of its channel, and told") {
    const TempFolder folder;
    Values images;  // four of one pixel
    for (const float value : {1.0f, 3.0f, 1e5f, 1e5f})
      images.insert(images.end(), {value, value / 1e5f});
    const std::vector<std::uint8_t> labels = {0, 1, 0, 1};
    SafetensorsWriter writer;
    for (const std::string split : {"train", "test"}) {
      writer.Add(split + ".images", {4, 1, 1, 2}, images);
      writer.Add(split + ".labels", DType::kU8, {4}, std::as_bytes(std::span(labels)));
    }
    writer.WriteAtomically(folder / "images.safetensors");
    const std::string text =
        "data: {dataset: tensors, path: " + (folder / "images.safetensors") + R"(,
  normalize: none, batch_size: 2}
model:
  classes: 2
  layers:
    - {name: bn, kind: batch_norm}
    - {name: fc, kind: linear, features: 2}
precision: {format: fp16}
train: {max_steps: 1}
evaluate: {recompute_batch_norm: true}
)";
    const Outcome o = Run(WriteConfig(folder, "run", text), folder.path());
    ADA_REQUIRE_EXIT(o, 0);
    CHECK_MESSAGE(Contains(o.err,
                           "recomputing batch norms: batches whose mean or variance is not "
                           "finite are left out of those of bn (1 channel)"),
                  o.err);

    config::Config config = config::LoadText(text, "test", {}).config;
    const data::DatasetInfo info = run::InspectData(config);
    config = run::Completed(config, info);
    const run::RunData data = run::ReadData(config, info);
    const auto policy = scaling::MakePolicy(config.scaling);
    const auto backend = backend::cpu::MakeCpuBackend(1);
    const auto graph = graph::Graph::Build(step::TrainGraph(config, data.image, *policy), *backend);
    graph::Initialize(*graph, config.model.init, config.seed, *backend);
    run::NormStatistics norms(config, data, *graph, *backend);
    norms.Recompute();
    std::map<std::string, Values> found;
    for (const graph::Parameter& p : graph->parameters())
      found[p.name] = step::HostValues(p.value, *backend);
    CheckNear(found["bn.running_mean"], Values{2, 0.50001f}, 1e-3);
    CheckNear(found["bn.running_var"], Values{2, 1e-10f}, 1e-3);
  }

  TEST_CASE("the averaged weights' statistics ask a policy with layers of its own for nothing") {
    const TempFolder folder;
    const auto run = WriteConfig(folder, "averaged", R"(
data: {dataset: synthetic, batch_size: 8, synthetic: {train: 16, test: 8}}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: bn1, kind: batch_norm}
    - {name: pool, kind: global_avg_pool}
    - {name: fc, kind: linear, features: 10}
precision: {format: fp16}
scaling: {policy: layerwise_dynamic}
train: {max_steps: 2, ema: {decay: 0.5}}
evaluate: {recompute_batch_norm: true}
)");
    ADA_REQUIRE_EXIT(Run(run, folder.path()), 0);
  }
}

}  // namespace
}  // namespace ada::testing
