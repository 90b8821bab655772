// The inverse error function and the normal quantile against figures of mpmath at 60 digits.
#include "scaling/rules/inverse_erf.h"

#include <doctest/doctest.h>

#include <cmath>

#include "error.h"

namespace ada::scaling {
namespace {

TEST_SUITE("cpu") {
  TEST_CASE("inverse error function against mpmath at 60 digits") {
    struct Row {
      double n, x;
    };
    const Row rows[] = {
        {1e-300, 8.86226925452758e-301},   {1e-20, 8.86226925452758e-21},
        {1e-08, 8.86226925452758e-09},     {1.1e-08, 9.748496179980338e-09},
        {1e-05, 8.862269254759594e-06},    {0.001, 0.0008862271574665521},
        {0.01, 0.008862501280950598},      {0.1, 0.08885599049425769},
        {0.25, 0.2253120550121781},        {0.3, 0.2724627147267543},
        {0.49, 0.46586860023505733},       {0.5, 0.4769362762044699},
        {0.51, 0.4881220505159588},        {0.7, 0.7328690779592167},
        {0.9, 1.1630871536766743},         {0.99, 1.8213863677184494},
        {0.999, 2.3267537655135246},       {0.999999, 3.458910737275499},
        {0.9999999999, 4.572824958544925}, {0.9999999999999999, 5.8635847487551676},
    };
    for (const Row& row : rows) {
      CAPTURE(row.n);
      CHECK(std::fabs(InverseErf(row.n) / row.x - 1) <= 5e-16);
    }
    CHECK(InverseErf(0) == 0);
    CHECK(InverseErf(1e-320) > 0);
    CHECK_THROWS_AS(InverseErf(1), InternalError);
    CHECK_THROWS_AS(InverseErf(-0.5), InternalError);
  }

  TEST_CASE("inverse error function: increasing, and erf takes it back") {
    double before = 0;
    for (int i = 1; i < 20000; ++i) {
      const double n = i / 20000.0, x = InverseErf(n);
      CHECK(x > before);
      CHECK(std::fabs(std::erf(x) - n) <= 3e-16);
      before = x;
    }
  }

  TEST_CASE("normal quantile") {
    struct Row {
      double p, x;
    };
    const Row rows[] = {{1e-300, -37.047096299361199237},   {1e-20, -9.2623400897984075796},
                        {1e-10, -6.3613409024040561991},    {1e-5, -4.2648907939228246102},
                        {0.001, -3.0902323061678135354},    {0.01, -2.3263478740408410931},
                        {0.1, -1.2815515655446004353},      {0.25, -0.6744897501960817432},
                        {0.4, -0.25334710313579974132},     {0.49, -0.025068908258711058033},
                        {0.499, -0.0025066308995717662317}, {0.6, 0.25334710313579974132},
                        {0.9, 1.2815515655446005935},       {0.999, 3.0902323061678132778}};
    for (const Row& row : rows) {
      CAPTURE(row.p);
      CHECK(std::fabs(NormalQuantile(row.p) / row.x - 1) <= 1e-15);
    }
    CHECK(NormalQuantile(0.5) == 0);
    CHECK(NormalQuantile(0) == -INFINITY);
    CHECK(NormalQuantile(1) == INFINITY);
    CHECK_THROWS_AS(NormalQuantile(-0.1), InternalError);
    CHECK_THROWS_AS(NormalQuantile(1.1), InternalError);
    CHECK_THROWS_AS(NormalQuantile(NAN), InternalError);
  }
}

}  // namespace
}  // namespace ada::scaling
