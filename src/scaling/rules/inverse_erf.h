// The inverse error function and what approx_range and lognormal make of it. Host only: it runs
// once a layer, when rules are made.
#pragma once

namespace ada::scaling {

// x with erf(x) = n, for 0 <= n < 1; within 1e-15 relative. Throws InternalError outside.
double InverseErf(double n);

// t = sqrt(2) * erfinv(n): a standard normal value lies within +-t with probability n, so a
// Gaussian gradient of deviation sigma loses the share n below u_min when u_min / sigma = t.
double GaussianThreshold(double n);

// x below which a standard normal value lies with probability p, for 0 <= p <= 1 (-inf and inf at
// the ends); within 1e-15 relative. Throws InternalError outside.
double NormalQuantile(double p);

}  // namespace ada::scaling
