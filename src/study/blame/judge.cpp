// What is a finding: a suspect whose fork ends further from the run than chance alone takes it.
#include <algorithm>
#include <map>

#include "study/blame/parts.h"

namespace ada::study {
namespace {

constexpr std::uint64_t kTwins = 4;
constexpr double kTimesNoise = 2;  // times the furthest twin

using Units = std::map<std::string, NumberFormat>;

Units UnitsOf(const std::vector<train::ForkLayer>& layers) {
  Units units;
  for (const train::ForkLayer& layer : layers) units[layer.name] = layer.unit;
  return units;
}

// The format that most layers have.
NumberFormat UsualUnit(const Units& units) {
  NumberFormat usual = kFp32;
  std::ptrdiff_t most = 0;
  for (const auto& [name, format] : units) {
    const auto same = std::count_if(units.begin(), units.end(),
                                    [&](const auto& unit) { return unit.second == format; });
    if (same <= most) continue;
    most = same;
    usual = format;
  }
  return usual;
}

train::ForkSpec SpecOf(const config::PrecisionConfig& precision) {
  train::ForkSpec spec;
  spec.precision = precision;
  return spec;
}

class Trial {
 public:
  Trial(const train::ForkSource& source, Forks& forks)
      : source_(source), forks_(forks), units_(UnitsOf(source.Layers())) {}

  void Run(std::vector<Suspect>& suspects) {
    const train::ForkResult& base = forks_.Of("as it was", SpecOf(source_.config().precision));
    const double floor = Floor("as it was", source_.config().precision, units_, base);
    for (Suspect& s : suspects) {
      s.noise = floor;
      if (s.rounds) s.effect = Distance(forks_.Of(s.fork(), SpecOf(PrecisionOf(s))), base);
    }
    std::stable_sort(suspects.begin(), suspects.end(),
                     [](const Suspect& a, const Suspect& b) { return a.effect > b.effect; });
    // The twins of the run move the weights of a layer in few bits by much; where a suspect is that
    // layer, the twins of its fork tell what chance is without it.
    bool goes_on = true;
    for (Suspect& s : suspects) {
      if (!(s.effect > 0)) break;
      s.significant = s.effect > kTimesNoise * s.noise;
      if (s.significant || !goes_on) continue;
      s.noise = Floor(s.fork(), PrecisionOf(s), UnitsWithout(s), forks_.Of(s.fork(), {}));
      s.significant = s.effect > kTimesNoise * s.noise;
      goes_on = s.significant;
    }
  }

 private:
  config::PrecisionConfig PrecisionOf(const Suspect& s) const {
    return Freed(source_.config().precision, s);
  }
  // Units in which the suspect's layers are no coarser than the other layers.
  Units UnitsWithout(const Suspect& suspect) const {
    Units units = units_, others = units_;
    for (const std::string& layer : suspect.layers) others.erase(layer);
    const NumberFormat usual = UsualUnit(others);
    for (const std::string& layer : suspect.layers)
      if (units[layer].mantissa_bits < usual.mantissa_bits) units[layer] = usual;
    return units;
  }
  // How far the furthest of a fork's twins ends from it.
  double Floor(const std::string& name, const config::PrecisionConfig& precision,
               const Units& units, const train::ForkResult& fork) {
    double furthest = 0;
    for (std::uint64_t twin = 1; twin <= kTwins; ++twin) {
      train::ForkSpec spec;
      spec.precision = precision;
      spec.twin = twin;
      spec.units = units;
      const train::ForkResult& moved = forks_.Of(name + ", twin " + std::to_string(twin), spec);
      furthest = std::max(furthest, Distance(moved, fork));
    }
    return furthest;
  }

  const train::ForkSource& source_;
  Forks& forks_;
  Units units_;
};

}  // namespace

void Judge(const train::ForkSource& source, Forks& forks, std::vector<Suspect>& suspects) {
  Trial(source, forks).Run(suspects);
}

}  // namespace ada::study
