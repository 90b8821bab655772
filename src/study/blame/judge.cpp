// Defines a finding: a suspect whose fork ends further from the run than chance alone explains.
// Chance is measured by twins: forks whose weights are perturbed by less than their format can
// resolve. The distance of a twin from its original cannot be blamed on any format.
#include <algorithm>
#include <map>
#include <tuple>

#include "study/blame/findings.h"

namespace ada::study {
namespace {

constexpr char kAsItWas[] = "as it was";
// A suspect is significant if its distance is kTimesNoise times the largest of its twins; if it is
// less than `kClear` times, more twins are run.
constexpr double kTimesNoise = 2, kClear = 4;
constexpr std::uint64_t kTwins = 4, kMoreTwins = 12;

using Units = std::map<std::string, NumberFormat>;
using Of = NumberFormat run::ForkLayer::*;  // its unit, or the narrowest format that it has

// By layer; those that train nothing and round nothing are left out.
Units UnitsOf(const std::vector<run::ForkLayer>& layers, Of of) {
  Units units;
  for (const run::ForkLayer& layer : layers)
    if (layer.trained || layer.rounds) units[layer.name] = layer.*of;
  return units;
}

// The format that most layers have.
// fp32 where there are no layers.
NumberFormat UsualUnit(const Units& units) {
  NumberFormat usual = kFp32;
  std::ptrdiff_t most = 0;
  for (const auto& one : units) {
    const auto same = std::count_if(units.begin(), units.end(),
                                    [&](const auto& unit) { return unit.second == one.second; });
    if (same <= most) continue;
    most = same;
    usual = one.second;
  }
  return usual;
}

run::ForkSpec SpecOf(const config::PrecisionConfig& precision) {
  run::ForkSpec spec;
  spec.precision = precision;
  return spec;
}

// A fork, and by how much its twins move the weights.
struct Reference {
  std::string name;
  config::PrecisionConfig precision;
  Units units;
};

// Runs once; forks that several questions share are run once, since Forks remembers them by name.
class Trial {
 public:
  Trial(const run::ForkSource& source, Forks& forks) : source_(source), forks_(forks) {}

  void Run(std::vector<Suspect>& suspects) {
    const config::PrecisionConfig& precision = source_.config().precision;
    const std::vector<run::ForkLayer> layers = source_.Layers(precision);
    const Reference run{kAsItWas, precision, UnitsOf(layers, kUnit)};
    const Units narrowest = UnitsOf(layers, kNarrowest);
    forks_.Expect(kAsItWas);
    ExpectTwins(run, kTwins);
    for (const Suspect& s : suspects)
      if (s.rounds) forks_.Expect(s.fork());
    for (Suspect& s : suspects) {
      // Also for suspects that round nothing, so that the table has a noise for each.
      s.noise = Floor(run, kTwins);
      if (!s.rounds) continue;
      s.effect = Distance(forks_.Of(s.fork(), SpecOf(PrecisionOf(s))), AsItWas(source_, forks_));
      s.significant = StandsOut(s, run);
      if (s.significant) continue;
      // If a suspect has few bits, the twins of the run are perturbed by much and end far away. If
      // the suspect itself has these few bits, twins of its own fork measure chance without it.
      const Reference without{s.fork(), PrecisionOf(s), Without(s, kUnit)};
      if (Without(s, kNarrowest) != narrowest ||
          without.precision.masters.format != precision.masters.format)
        s.significant = StandsOut(s, without);
    }
    std::stable_sort(suspects.begin(), suspects.end(), [](const Suspect& a, const Suspect& b) {
      return std::tie(a.significant, a.effect) > std::tie(b.significant, b.effect);
    });
  }

 private:
  static constexpr Of kUnit = &run::ForkLayer::unit, kNarrowest = &run::ForkLayer::narrowest;

  config::PrecisionConfig PrecisionOf(const Suspect& s) const {
    return Freed(source_.config().precision, s);
  }
  // Those of the formats that are left without it. A layer that it puts into fp32 has what most
  // others have, where its own is finer: it is no less subject to chance than they are.
  Units Without(const Suspect& suspect, Of of) const {
    Units units = UnitsOf(source_.Layers(PrecisionOf(suspect)), of), others = units;
    for (const std::string& layer : suspect.layers) others.erase(layer);
    const NumberFormat usual = UsualUnit(others);
    for (const std::string& layer : suspect.layers) {
      const auto unit = units.find(layer);
      if (unit != units.end() && unit->second.mantissa_bits > usual.mantissa_bits)
        unit->second = usual;
    }
    return units;
  }
  bool StandsOut(Suspect& s, const Reference& reference) {
    s.noise = Floor(reference, kTwins);
    // Four twins give a rough floor; only a result that is near it is worth eight more.
    if (s.effect > kTimesNoise * s.noise && s.effect < kClear * s.noise)
      s.noise = Floor(reference, kMoreTwins);
    return s.effect > kTimesNoise * s.noise;
  }
  static std::string TwinOf(const Reference& reference, std::uint64_t twin) {
    return reference.name + ", twin " + std::to_string(twin);
  }
  void ExpectTwins(const Reference& reference, std::uint64_t twins) {
    for (std::uint64_t twin = 1; twin <= twins; ++twin) forks_.Expect(TwinOf(reference, twin));
  }
  // How far the furthest of a fork's twins ends from it.
  double Floor(const Reference& reference, std::uint64_t twins) {
    const run::ForkResult& fork = forks_.Of(reference.name, SpecOf(reference.precision));
    ExpectTwins(reference, twins);
    double furthest = 0;
    for (std::uint64_t twin = 1; twin <= twins; ++twin) {
      run::ForkSpec spec = SpecOf(reference.precision);
      spec.twin = twin;
      spec.units = reference.units;
      const run::ForkResult& moved = forks_.Of(TwinOf(reference, twin), spec);
      furthest = std::max(furthest, Distance(moved, fork));
    }
    return furthest;
  }

  const run::ForkSource& source_;
  Forks& forks_;
};

}  // namespace

const run::ForkResult& AsItWas(const run::ForkSource& source, Forks& forks) {
  return forks.Of(kAsItWas, SpecOf(source.config().precision));
}

void Judge(const run::ForkSource& source, Forks& forks, std::vector<Suspect>& suspects) {
  Trial(source, forks).Run(suspects);
}

}  // namespace ada::study
