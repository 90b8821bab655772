// How far two sets of predictions lie apart.
#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "run/mismatch/mismatch.h"
#include "study/mismatch/mismatch.h"

namespace ada::study {
namespace {

constexpr int kResamplings = 200;
constexpr std::uint64_t kResamplingSeed = 1;

std::size_t Likeliest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

using ValueOf = std::function<double(const MismatchPosition&)>;

// The mean and the error of a ratio of sums, by sample.
MismatchFigure MeanFigure(const char* name, const std::vector<MismatchPosition>& positions,
                          const ValueOf& value) {
  std::map<std::int64_t, std::pair<double, double>> by_sample;  // sum, count
  double sum = 0, count = 0;
  for (const MismatchPosition& position : positions) {
    const double one = value(position);
    if (std::isnan(one)) continue;
    auto& [of_sum, of_count] = by_sample[position.sample];
    of_sum += one, of_count += 1, sum += one, count += 1;
  }
  MismatchFigure figure{name};
  if (count == 0) return figure;
  figure.value = sum / count;
  const auto samples = static_cast<double>(by_sample.size());
  if (by_sample.size() < 2) return figure;
  double squares = 0;
  for (const auto& [sample, of] : by_sample) {
    const double rest = of.first - figure.value * of.second;
    squares += rest * rest;
  }
  figure.error = std::sqrt(samples / (samples - 1) * squares) / count;
  return figure;
}

double Percentile99(std::vector<double> values) {
  const std::size_t at =
      (values.size() * 99 + 99) / 100 - 1;  // the smallest that 99 % do not exceed
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

MismatchFigure PercentileFigure(const char* name, const std::vector<MismatchPosition>& positions,
                                const ValueOf& value) {
  std::map<std::int64_t, std::vector<double>> by_sample;
  std::vector<double> all;
  for (const MismatchPosition& position : positions) {
    const double one = value(position);
    if (std::isnan(one)) continue;
    by_sample[position.sample].push_back(one);
    all.push_back(one);
  }
  MismatchFigure figure{name};
  if (all.empty()) return figure;
  figure.value = Percentile99(all);
  if (by_sample.size() < 2) return figure;
  std::vector<const std::vector<double>*> samples;
  for (const auto& [sample, values] : by_sample) samples.push_back(&values);
  std::mt19937_64 random(kResamplingSeed);
  double sum = 0, squares = 0;
  for (int i = 0; i < kResamplings; ++i) {
    std::vector<double> drawn;
    for (std::size_t k = 0; k < samples.size(); ++k) {
      const std::vector<double>& values = *samples[random() % samples.size()];
      drawn.insert(drawn.end(), values.begin(), values.end());
    }
    const double one = Percentile99(std::move(drawn));
    sum += one, squares += one * one;
  }
  const double mean = sum / kResamplings;
  figure.error = std::sqrt(std::max(0.0, squares / kResamplings - mean * mean));
  return figure;
}

}  // namespace

MismatchPosition Compare(std::span<const float> a, std::span<const float> b, std::int64_t target,
                         bool take_likeliest) {
  MismatchPosition position;
  const double of_a = run::LogSum(a), of_b = run::LogSum(b);
  position.divergence = run::Divergence(a, of_a, b, of_b);
  const std::size_t likeliest = Likeliest(a);
  position.agrees = likeliest == Likeliest(b);
  if (target < 0 && take_likeliest) target = static_cast<std::int64_t>(likeliest);
  position.difference = NAN;
  if (target >= 0) {
    const auto t = static_cast<std::size_t>(target);
    position.difference = (b[t] - of_b) - (a[t] - of_a);
  }
  return position;
}

MismatchPosition CompareTokens(double a, double b) {
  MismatchPosition position;
  position.difference = b - a;
  position.divergence = std::expm1(position.difference) - position.difference;
  return position;
}

std::vector<MismatchFigure> Summarize(const std::vector<MismatchPosition>& positions,
                                      bool has_agreement) {
  const auto divergence = [](const MismatchPosition& p) { return p.divergence; };
  const auto difference = [](const MismatchPosition& p) { return p.difference; };
  const auto distance = [](const MismatchPosition& p) { return std::fabs(p.difference); };
  std::vector<MismatchFigure> figures = {
      MeanFigure("kl_mean", positions, divergence),
      PercentileFigure("kl_p99", positions, divergence),
      MismatchFigure{"kl_max"},
      MeanFigure("difference_mean", positions, difference),
      MeanFigure("difference_abs_mean", positions, distance),
      PercentileFigure("difference_abs_p99", positions, distance)};
  for (const MismatchPosition& position : positions)
    figures[2].value = std::fmax(figures[2].value, position.divergence);
  if (has_agreement)
    figures.push_back(MeanFigure("agreement", positions,
                                 [](const MismatchPosition& p) { return p.agrees ? 1.0 : 0.0; }));
  return figures;
}

}  // namespace ada::study
