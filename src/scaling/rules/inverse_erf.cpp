// An initial value that is right to a few per cent, then Newton's method on std::erf or std::erfc.
#include "scaling/rules/inverse_erf.h"

#include <cmath>
#include <limits>

#include "error.h"

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

// Returns x with erf(x) = n and erfc(x) = tail, of which the smaller is exact; tail > 0.
double Solve(double n, double tail) {
  if (n < std::numeric_limits<double>::min()) return n / kTwoOverSqrtPi;
  double x = n < 1e-8 ? n / kTwoOverSqrtPi : Start(std::log1p(n) + std::log(tail));
  // Newton doubles the digits: 2e-3, 4e-6, 2e-11, 1e-16; far out in the tail x^2 slows it a little.
  for (int i = 0; i < 8; ++i) {
    const double error = n < 0.5 ? std::erf(x) - n : tail - std::erfc(x);
    const double correction = error / (kTwoOverSqrtPi * std::exp(-x * x));
    x -= correction / (1 + x * correction);  // Halley's term keeps convergence fast in the tail
    if (std::fabs(correction) <= 1e-16 * x) break;
  }
  return x;
}

}  // namespace

double InverseErf(double n) {
  ADA_CHECK(n >= 0 && n < 1);
  return Solve(n, 1 - n);  // 1 - n is exact for n >= 0.5
}

double GaussianThreshold(double n) { return std::sqrt(2.0) * InverseErf(n); }

double NormalQuantile(double p) {
  ADA_CHECK(p >= 0 && p <= 1);
  const double side = p < 0.5 ? p : 1 - p;  // exact
  const double x = side > 0 ? std::sqrt(2.0) * Solve(1 - 2 * side, 2 * side)
                            : std::numeric_limits<double>::infinity();
  return p < 0.5 ? -x : x;
}

}  // namespace ada::scaling
