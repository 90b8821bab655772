// The inverse error function and what approx_range makes of it. Host only: it runs once a layer,
// when rules are made.
#pragma once

namespace ada::scaling {

// x with erf(x) = n, for 0 <= n < 1; within 1e-15 relative. Throws InternalError outside.
double InverseErf(double n);

// t = sqrt(2) * erfinv(n): a standard normal value lies within +-t with probability n, so a
// Gaussian gradient of deviation sigma loses the share n below u_min when u_min / sigma = t
// (POLICIES 1).
double GaussianThreshold(double n);

}  // namespace ada::scaling
