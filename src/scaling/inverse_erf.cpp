// A start that is right to a few per cent, then Newton's method on std::erf or std::erfc.
#include "scaling/inverse_erf.h"

#include <cmath>
#include <limits>

#include "core/error.h"

namespace ada::scaling {
namespace {

constexpr double kTwoOverSqrtPi = 1.1283791670955126;

// Winitzki, "A handy approximation for the error function and its inverse" (2008), a = 0.147: the
// start of the iteration, relative error below 2e-3. `l` is ln(1 - n^2).
double Start(double l) {
  const double a = 0.147;
  const double b = 2 / (M_PI * a) + l / 2;
  // (-l / a) / (sqrt(b^2 - l / a) + b) is sqrt(b^2 - l / a) - b without cancellation near n = 0.
  const double root = std::sqrt(b * b - l / a);
  return std::sqrt(b > 0 ? (-l / a) / (root + b) : root - b);
}

}  // namespace

double InverseErf(double n) {
  ADA_CHECK(n >= 0 && n < 1);
  if (n < std::numeric_limits<double>::min()) return n / kTwoOverSqrtPi;
  const double tail = 1 - n;  // exact for n >= 0.5
  double x = n < 1e-8 ? n / kTwoOverSqrtPi : Start(std::log1p(n) + std::log(tail));
  // Newton doubles the digits: 2e-3, 4e-6, 2e-11, 1e-16; far out in the tail x^2 slows it a little.
  for (int i = 0; i < 8; ++i) {
    const double error = n < 0.5 ? std::erf(x) - n : tail - std::erfc(x);
    const double correction = error / (kTwoOverSqrtPi * std::exp(-x * x));
    x -= correction / (1 + x * correction);  // Halley's term keeps the tail quick
    if (std::fabs(correction) <= 1e-16 * x) break;
  }
  return x;
}

double GaussianThreshold(double n) { return std::sqrt(2.0) * InverseErf(n); }

}  // namespace ada::scaling
