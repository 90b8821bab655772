// mismatch: how far the predictions of one network under two precisions lie apart.
#include "study/mismatch/mismatch.h"

#include <ostream>

#include "error.h"
#include "io/file.h"
#include "io/text.h"

namespace ada::study {
namespace {

constexpr std::array<const char*, 2> kSide = {"a", "b"};

// Predictions of the network, and its layers.
MismatchPositions Predict(const MismatchOptions& options, std::vector<run::LayerMismatch>& layers,
                          telemetry::Log& log) {
  MismatchPositions positions;
  positions.twins.resize(2);
  positions.differences_of = "the target";
  run::MismatchSpec spec;
  spec.config = options.config;
  spec.precision = {options.precision[0], options.precision[1]};
  spec.weights = options.paths.empty() ? "" : options.paths.front();
  spec.samples = options.samples;
  spec.layers = options.layers;
  layers = run::FindMismatch(
      spec,
      [&](const run::MismatchSample& sample) {
        positions.has_positions = positions.has_positions || sample.positions > 1;
        const auto classes = static_cast<std::size_t>(sample.classes);
        for (std::int64_t at = 0; at < sample.positions; ++at) {
          const std::int64_t target =
              sample.targets.empty() ? -1 : sample.targets[static_cast<std::size_t>(at)];
          const auto add = [&](std::span<const float> a, std::span<const float> b,
                               std::vector<MismatchPosition>& to) {
            const std::size_t from = static_cast<std::size_t>(at) * classes;
            MismatchPosition& one = to.emplace_back(
                Compare(a.subspan(from, classes), b.subspan(from, classes), target, false));
            one.sample = positions.samples, one.position = at;
          };
          add(sample.logits[0], sample.logits[1], positions.apart);
          for (std::size_t side = 0; side < 2; ++side)
            add(sample.logits[side], sample.twins[side], positions.twins[side]);
        }
        ++positions.samples;
      },
      log);
  return positions;
}

// The figures with the floors of equal precision: the larger of the twins', of agreement the
// smaller.
std::vector<MismatchFigure> WithFloors(const std::vector<MismatchPosition>& apart,
                                       const std::vector<std::vector<MismatchPosition>>& twins,
                                       bool has_agreement) {
  std::vector<MismatchFigure> figures = Summarize(apart, has_agreement);
  for (const std::vector<MismatchPosition>& twin : twins) {
    const std::vector<MismatchFigure> floors = Summarize(twin, has_agreement);
    for (std::size_t i = 0; i < figures.size(); ++i) {
      double& floor = figures[i].floor;
      const double size = std::fabs(floors[i].value);
      floor = figures[i].name == "agreement" ? std::fmin(floor, size) : std::fmax(floor, size);
    }
  }
  return figures;
}

// The positions of all samples by their place, from 0 on.
std::vector<std::vector<MismatchPosition>> ByPlace(const std::vector<MismatchPosition>& all) {
  std::vector<std::vector<MismatchPosition>> places;
  for (const MismatchPosition& one : all) {
    const auto place = static_cast<std::size_t>(one.position);
    if (place >= places.size()) places.resize(place + 1);
    places[place].push_back(one);
  }
  return places;
}

std::string SentenceOf(const MismatchResult& result, const std::vector<MismatchFigure>& figures) {
  const auto figure = [&](const char* name) {
    for (const MismatchFigure& one : figures)
      if (one.name == name) return one;
    return MismatchFigure{};
  };
  const MismatchFigure mean = figure("kl_mean"), distance = figure("difference_abs_mean");
  std::string text = result.sides[1] + " lies " + Formatted("%.3g nats", mean.value) +
                     " of KL divergence from " + result.sides[0];
  if (!std::isnan(mean.floor) && mean.floor > 0)
    text += Formatted(", %.3g times what equal precision gives", mean.value / mean.floor);
  if (!std::isnan(distance.value))
    text += Formatted("; log-probabilities of %s differ by %.3g", result.differences_of.c_str(),
                      distance.value) +
            " in the mean";
  if (const MismatchFigure agreement = figure("agreement"); !std::isnan(agreement.value))
    text += Formatted("; the likeliest is the same in %.4g %%", 100 * agreement.value);
  const run::LayerMismatch* worst = nullptr;
  std::size_t side = 0;
  for (const run::LayerMismatch& layer : result.layers)
    for (std::size_t s = 0; s < 2; ++s)
      if (worst == nullptr || layer.alone[s] > worst->alone[side]) worst = &layer, side = s;
  if (worst == nullptr || worst->alone[side] == 0) return text + ".";
  text += "; most of it comes from layer " + worst->layer + " in " + result.sides[side] +
          Formatted(", which alone makes %.3g nats", worst->alone[side]);
  for (const run::LayerMismatch& layer : result.layers)
    if (layer.alone[side] >= worst->alone[side] / 2) {
      if (&layer != worst) text += "; the first to make half as much is " + layer.layer;
      break;
    }
  return text + ".";
}

}  // namespace

MismatchResult ResultOf(const MismatchPositions& positions,
                        const std::vector<run::LayerMismatch>& layers,
                        const std::vector<std::string>& sides) {
  MismatchResult result;
  result.sides = sides;
  result.layers = layers;
  result.samples = positions.samples;
  result.positions = static_cast<std::int64_t>(positions.apart.size());
  result.differences_of = positions.differences_of;
  const auto add = [&](const char* scope, const std::string& name,
                       const std::vector<MismatchFigure>& figures) {
    for (const MismatchFigure& one : figures)
      result.rows.push_back({scope, name, one.name, one.value, one.error, one.floor});
  };
  const std::vector<MismatchFigure> all =
      WithFloors(positions.apart, positions.twins, positions.has_agreement);
  add("all", "", all);
  if (positions.has_positions) {
    const auto places = ByPlace(positions.apart);
    std::vector<std::vector<std::vector<MismatchPosition>>> of_twins;
    for (const auto& twin : positions.twins) of_twins.push_back(ByPlace(twin));
    for (std::size_t at = 0; at < places.size(); ++at) {
      std::vector<std::vector<MismatchPosition>> twins;
      for (auto& twin : of_twins) twins.push_back(std::move(twin[at]));
      add("position", std::to_string(at), WithFloors(places[at], twins, positions.has_agreement));
    }
  }
  for (const run::LayerMismatch& layer : layers) {
    result.rows.push_back({"layer", layer.layer, "apart", layer.apart, NAN, NAN});
    for (std::size_t side = 0; side < 2; ++side) {
      const std::string end = std::string("_") + kSide[side];
      result.rows.push_back({"layer", layer.layer, "adds" + end, layer.adds[side], NAN, NAN});
      result.rows.push_back(
          {"layer", layer.layer, "inherits" + end, layer.inherits[side], NAN, NAN});
      result.rows.push_back({"layer", layer.layer, "kl_alone" + end, layer.alone[side], NAN, NAN});
    }
  }
  result.sentence = SentenceOf(result, all);
  return result;
}

void Mismatch(const MismatchOptions& options, std::ostream& out, telemetry::Log& log) {
  std::vector<run::LayerMismatch> layers;
  const MismatchPositions positions =
      options.precision.empty() ? ReadPredictions(options) : Predict(options, layers, log);
  const MismatchResult result = ResultOf(positions, layers, options.sides);
  if (!options.picture.empty()) WriteFileAtomically(options.picture, MismatchPicture(result));
  PrintMismatch(result, options.view, out);
}

}  // namespace ada::study
