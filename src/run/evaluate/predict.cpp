// The predict command.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <ostream>
#include <utility>

#include "data/folder/listing.h"
#include "data/image_writer.h"
#include "data/images/picture.h"
#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "run/assemble/assemble.h"
#include "run/evaluate/evaluation_commands.h"
#include "run/evaluate/evaluator.h"
#include "run/evaluate/norm_statistics.h"
#include "run/evaluate/protect_data.h"
#include "run/evaluate/reports.h"
#include "run/evaluate/weights.h"
#include "run/facts/data_facts.h"
#include "step/specs.h"
#include "telemetry/csv.h"

namespace ada::run {
namespace {

// How a picture is turned into the network's input, and the names of classes. Determined once for
// all photos, from the checkpoint or from the data set.
struct InputRules {
  data::ImageShape shape;
  data::LoaderSpec loader;
  std::vector<std::string> names;  // may be empty
};

// The loader's rules for an arbitrary photo. If there are no rules because the data set's images
// have one size, the photo is scaled to the smallest size that covers the input, and cropped at the
// center (`whole`: it is stretched to the input, so that predictions cover all of it).
data::LoaderSpec FittingLoader(const InputRules& rules, const data::Picture& photo, bool whole) {
  data::LoaderSpec loader = rules.loader;
  const std::int64_t height = rules.shape.height, width = rules.shape.width;
  const bool fits = photo.height == height && photo.width == width;
  if (fits || loader.changes.resize.any() || loader.changes.crops()) return loader;
  if (whole) {
    loader.changes.resize.to = {rules.shape.height, rules.shape.width};
    return loader;
  }
  // The shorter side so that the other one covers the input too; rounded up.
  const std::int64_t shorter = std::min(photo.height, photo.width);
  const auto scaled = [&](std::int64_t want, std::int64_t have) {
    return (shorter * want + have - 1) / have;
  };
  loader.changes.resize.shorter =
      static_cast<int>(std::max(scaled(height, photo.height), scaled(width, photo.width)));
  loader.changes.center_crop = {rules.shape.height, rules.shape.width};
  return loader;
}

struct Guess {
  int label = 0;
  double probability = 0;
};

// The `count` largest of the softmax, of equals the first; what is NaN comes last.
std::vector<Guess> Likeliest(std::span<const float> logits, int count) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](int k) {
    const float z = logits[static_cast<std::size_t>(k)];
    return std::isnan(z) ? -INFINITY : z;
  };
  const auto kept = std::min<std::size_t>(static_cast<std::size_t>(count), order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
      [&](int a, int b) { return value(a) > value(b) || (value(a) == value(b) && a < b); });
  double sum = 0;
  // The first of the order is the largest logit, by which the softmax is shifted; where a logit is
  // NaN the sum is, and with it all probabilities.
  const double highest = value(order.front());
  for (const float z : logits) sum += std::exp(static_cast<double>(z) - highest);
  std::vector<Guess> guesses;
  for (std::size_t i = 0; i < kept; ++i) {
    const double z = logits[static_cast<std::size_t>(order[i])];
    guesses.push_back({order[i], std::exp(z - highest) / sum});
  }
  return guesses;
}

// Prints the classes of each photo as they come, except JSON, which is one document at the end.
class Printer {
 public:
  Printer(const PredictOptions& options, const std::vector<std::string>& names, std::ostream& out)
      : options_(options), names_(names), out_(out) {
    if (options.format == PredictFormat::kCsv) out << "photo,rank,class,name,probability\n";
  }

  void Print(const std::string& photo, const std::vector<Guess>& guesses) {
    if (options_.format == PredictFormat::kJson) return AddJson(photo, guesses);
    if (options_.format == PredictFormat::kText) out_ << Visible(photo) << '\n';
    for (std::size_t i = 0; i < guesses.size(); ++i) {
      const Guess& g = guesses[i];
      if (options_.format == PredictFormat::kCsv)
        out_ << telemetry::CsvField(photo) << ',' << i + 1 << ',' << g.label << ','
             << telemetry::CsvField(NameOf(g.label)) << ',' << NineDigits(g.probability) << '\n';
      else
        out_ << "  " << Percent(g.probability) << "  " << Shown(g.label) << '\n';
    }
  }
  void Finish() {
    if (options_.format == PredictFormat::kJson) out_ << list_.dump(2) << '\n';
  }

 private:
  std::string NameOf(int label) const {
    const auto k = static_cast<std::size_t>(label);
    return k < names_.size() ? names_[k] : "";
  }
  std::string Shown(int label) const {
    const std::string name = NameOf(label);
    return name.empty() ? "class " + std::to_string(label) : Visible(name);
  }
  static std::string Percent(double probability) {
    char text[32];
    std::snprintf(text, sizeof text, "%6.2f %%", 100 * probability);
    return text;
  }
  void AddJson(const std::string& photo, const std::vector<Guess>& guesses) {
    nlohmann::ordered_json classes = nlohmann::ordered_json::array();
    for (const Guess& g : guesses) {
      nlohmann::ordered_json one = {{"class", g.label}};
      if (!NameOf(g.label).empty()) one["name"] = ValidUtf8(NameOf(g.label));
      one["probability"] = std::isfinite(g.probability) ? nlohmann::ordered_json(g.probability)
                                                        : nlohmann::ordered_json(nullptr);
      classes.push_back(std::move(one));
    }
    nlohmann::ordered_json entry = {{"photo", ValidUtf8(photo)}};
    entry["classes"] = std::move(classes);
    list_.push_back(std::move(entry));
  }

  const PredictOptions& options_;
  const std::vector<std::string>& names_;
  std::ostream& out_;
  nlohmann::ordered_json list_ = nlohmann::ordered_json::array();
};

// What is to be known, and the configuration completed by it.
struct Known {
  config::Config config;
  InputFacts input;
};
Known FromData(const config::Config& given, const std::string& weights,
               const std::optional<InputFacts>& carried, telemetry::Log& log) {
  const data::DatasetInfo info = InspectData(given);
  RequireSameClasses(weights, carried, given, info);
  const config::Config config = Completed(given, info);
  const RunData data = ReadData(config, info);
  LogFileWarnings(data, log);
  return {config, InputFactsOf(config, data)};
}

// Recomputes batch norms' statistics from the training images, if the configuration asks for it.
void RecomputeNormsOf(const config::Config& config, bool logged, const graph::Graph& graph,
                      backend::Backend& backend, telemetry::Log& log) {
  if (!RecomputesNorms(config)) return;
  const RunData data = ReadData(config);
  if (!logged) LogFileWarnings(data, log);
  RecomputeNorms(config, data, graph, backend, log, /*progress=*/true);
}

InputRules RulesOf(const config::Config& config, const InputFacts& input) {
  InputRules rules;
  rules.shape = {static_cast<int>(input.image.h), static_cast<int>(input.image.w),
                 static_cast<int>(input.image.c)};
  rules.loader = EvaluationLoader(config, input.mean, input.std);
  rules.names = input.class_names;
  return rules;
}

// The network, looking at one photo after the other.
// Runs the evaluation's graph with one image at a time. The graph has a loss, which wants labels
// and locations; those it gets are made up and its loss is not read.
class PhotoPredictor {
 public:
  PhotoPredictor(const config::Config& config, const InputRules& rules, graph::Graph& graph,
                 backend::Backend& backend)
      : whole_(config.task != Task::kClassification),
        rules_(rules),
        graph_(graph),
        backend_(backend) {
    pass_.training = false;
    pass_.rows = 1;
    graph.RefreshWeights(pass_);
    const Shape& last = graph.outputs().back().shape;
    labels_.resize(static_cast<std::size_t>(last.h * last.w));  // dummy labels, as none are known
    if (graph.outputs().size() > 1) locations_.resize(labels_.size() * 4);
    for (const Tensor& output : graph.outputs())
      outputs_.emplace_back(static_cast<std::size_t>(output.shape.per_image()));
  }

  void Predict(const data::Picture& picture, const std::string& photo) {
    const std::vector<float> input =
        data::NetworkInput(picture, FittingLoader(rules_, picture, whole_), rules_.shape, photo);
    graph_.SetBatch(input.data(), {labels_.data(), {}, locations_.data()}, 1);
    graph_.Forward(pass_);
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      backend_.Read(graph_.outputs()[i], 1, outputs_[i].data());
  }
  // The outputs for the last photo.
  const std::vector<std::vector<float>>& outputs() const { return outputs_; }

 private:
  bool whole_;
  const InputRules& rules_;
  graph::Graph& graph_;
  backend::Backend& backend_;
  backend::Pass pass_;
  std::vector<std::int32_t> labels_;
  std::vector<float> locations_;
  std::vector<std::vector<float>> outputs_;
};

// A picture in the network's channels: RGB as it is, gray by ITU-R 601's weights.
data::Picture InChannels(data::Picture picture, int channels, const std::string& path) {
  if (picture.channels == channels) return picture;
  if (channels != 1)
    throw DataError(path + ": the network takes " + Counted(channels, "channel") +
                    ", and a photo has 3, or 1 in grey");
  data::Picture gray{picture.height, picture.width, 1, {}};
  gray.pixels.resize(picture.pixels.size() / 3);
  for (std::size_t i = 0; i < gray.pixels.size(); ++i) {
    const std::uint8_t* rgb = &picture.pixels[3 * i];
    // Thousandths of 2^16, as Pillow's convert("L").
    gray.pixels[i] =
        static_cast<std::uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
  return gray;
}

// The photos that are named, and those in folders that are named. DataError if a folder has none.
// Files are not checked here: unreadable ones are reported when their turn comes.
std::vector<std::string> PhotosOf(const std::vector<std::string>& named, telemetry::Log& log) {
  std::vector<std::string> photos;
  for (const std::string& name : named) {
    if (!IsDataFolder(name)) {
      photos.push_back(name);
      continue;
    }
    const data::FolderPictures found = data::PicturesBelow(data::WithoutLastSlash(name));
    if (!found.not_read.empty())
      log.Warning(name + ": " + data::NotReadText(found.not_read) + "; they are not looked at");
    if (found.pictures.empty())
      throw DataError(name + ": holds no pictures (.jpg, .jpeg, .png, .webp)");
    photos.insert(photos.end(), found.pictures.begin(), found.pictures.end());
  }
  return photos;
}

// Warns of what reading silently changes in the photos. Unreadable photos are ignored.
void WarnOfSurprises(const std::vector<std::string>& photos, const data::PictureRules& rules,
                     telemetry::Log& log) {
  std::vector<std::pair<std::string, data::PictureTraits>> read;
  for (const std::string& photo : photos) {
    try {
      read.emplace_back(photo, data::NeedsOfPictureFile(photo).traits);
    } catch (const DataError&) {
    }
  }
  for (const data::Surprise& surprise : data::Surprises()) {
    const auto holds = [&](const auto& one) { return surprise.holds(one.second, rules); };
    const auto first = std::find_if(read.begin(), read.end(), holds);
    if (first == read.end()) continue;
    log.Warning(
        data::SurpriseText(surprise, std::count_if(first, read.end(), holds), first->first));
  }
}

// Reads photos one by one: with several photos, a broken one is reported and left out.
class ReadablePhotos {
 public:
  ReadablePhotos(std::size_t photos, telemetry::Log& log) : photos_(photos), log_(log) {}

  template <class Use>
  void Try(const Use& use) {
    try {
      use();
    } catch (const DataError& error) {
      if (photos_ == 1) throw;
      if (broken_++ == 0) first_ = error.what();
      log_.Warning(std::string(error.what()) + " (left out)");
    }
  }
  void RequireAny() const {
    if (broken_ == photos_)
      throw DataError("none of " + Counted(static_cast<std::int64_t>(photos_), "photo") +
                      " can be used; the first: " + first_);
  }

 private:
  std::size_t photos_, broken_ = 0;
  telemetry::Log& log_;
  std::string first_;
};

}  // namespace

void Predict(const config::Config& given, const std::string& weights,
             const std::vector<std::string>& named, const PredictOptions& options,
             std::ostream& out, telemetry::Log& log) {
  if (given.task == Task::kLanguage)
    throw ConfigError("predict is for photos, and " + weights +
                      " is a language model; `ada-train generate` goes on with a text");
  const std::vector<std::string> photos = PhotosOf(named, log);
  if (!options.predictions.empty()) {
    if (given.task == Task::kClassification)
      throw ConfigError("--predictions: expected a network for segmentation or detection");
    ProtectPhotos(options.predictions, given, photos);
  }
  const ChosenBackend chosen = MakeBackend(given.device);
  const std::optional<CheckpointState> state = StateOfCheckpoint(weights);
  const std::optional<InputFacts> carried = state ? state->input : std::nullopt;
  const bool asks_data = !carried || options.asks_data;
  auto [config, input] =
      asks_data ? FromData(given, weights, carried, log) : Known{given, *carried};
  config.data.evaluate_batch_size = 1;
  const InputRules rules = RulesOf(config, input);
  const auto graph =
      graph::Graph::Build(step::EvaluationGraph(config, input.image), *chosen.backend);
  LoadEvaluatedWeights(weights, EvaluatesAverage(config), *graph, *chosen.backend, log);
  RecomputeNormsOf(config, /*logged=*/asks_data, *graph, *chosen.backend, log);
  PhotoPredictor network(config, rules, *graph, *chosen.backend);
  WarnOfSurprises(photos, config.data.pictures, log);
  ReadablePhotos readable(photos.size(), log);
  // clang 14 captures no structured binding; clang 16 does.
  const auto read = [&, &pictures = config.data.pictures](const std::string& photo) {
    return InChannels(data::ReadPicture(photo, pictures), rules.shape.channels, photo);
  };
  if (config.task == Task::kClassification) {
    Printer printer(options, rules.names, out);
    for (const std::string& photo : photos)
      readable.Try([&] {
        network.Predict(read(photo), photo);
        printer.Print(photo, Likeliest(network.outputs().front(), options.top));
      });
    readable.RequireAny();
    return printer.Finish();
  }
  const PredictionMaker maker(config, input.image, graph->classes());
  PhotoReport report(config, options, rules.names, out);
  for (const std::string& photo : photos)
    readable.Try([&] {
      data::Picture picture = read(photo);
      network.Predict(picture, photo);
      std::vector<const float*> outputs;
      for (const std::vector<float>& output : network.outputs()) outputs.push_back(output.data());
      const data::PictureSize size = picture.size();
      report.Add(photo, std::move(picture), maker.Make(outputs, size));
    });
  readable.RequireAny();
  report.Finish();
}

}  // namespace ada::run
