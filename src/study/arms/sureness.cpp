// How far chance explains what trainings of several seeds differ by: Student's t.
#include <algorithm>
#include <array>
#include <cmath>

#include "study/arms/arms.h"

namespace ada::study {
namespace {

// One-sided quantiles of Student's t by degrees of freedom, from 1: of 90 % and of 99 %.
constexpr std::array<double, 10> kFairlySure = {3.078, 1.886, 1.638, 1.533, 1.476,
                                                1.440, 1.415, 1.397, 1.383, 1.372};
constexpr std::array<double, 10> kWellSure = {31.821, 6.965, 4.541, 3.747, 3.365,
                                              3.143,  2.998, 2.896, 2.821, 2.764};
double Quantile(const std::array<double, 10>& quantiles, std::size_t freedom) {
  return quantiles[std::min(std::max<std::size_t>(freedom, 1), quantiles.size()) - 1];
}

}  // namespace

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? NAN : sum / static_cast<double>(values.size());
}

double DeviationOf(const std::vector<double>& values) {
  if (values.size() < 2) return NAN;
  const double mean = MeanOf(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

bool Sureness::fairly() const { return t > Quantile(kFairlySure, freedom); }
bool Sureness::well() const { return t > Quantile(kWellSure, freedom); }
double WellSureT() { return kWellSure.back(); }

Sureness SurenessOf(double mean, double deviation, std::size_t seeds, double noise,
                    std::size_t twins) {
  Sureness distance;
  const bool by_seeds = std::isfinite(deviation) && deviation > noise;
  distance.freedom = by_seeds ? seeds - 1 : twins + seeds - 1;
  distance.error = (by_seeds ? deviation : noise) / std::sqrt(static_cast<double>(seeds));
  distance.t = distance.error > 0 ? std::fabs(mean) / distance.error : INFINITY;
  return distance;
}

}  // namespace ada::study
