// The inverse error function and the constants of approx_range and lognormal computed with it. Host
// only: it runs once for each layer, when rules are made.
#pragma once

namespace ada::scaling {

// x with erf(x) = n, for 0 <= n < 1; within 1e-15 relative. Throws InternalError outside.
double InverseErf(double n);

// t = sqrt(2) * erfinv(n): a standard normal value is within +-t with probability n, so a Gaussian
// gradient of standard deviation sigma has the share n below u_min if u_min / sigma = t.
double GaussianThreshold(double n);

// Returns x such that a standard normal value is below x with probability p, for 0 <= p <= 1 (-inf
// and inf at the ends); relative error below 1e-15. Throws InternalError otherwise.
double NormalQuantile(double p);

}  // namespace ada::scaling
