// What is said of one image, from its logits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "run/evaluate/evaluator.h"

namespace ada::testing {
namespace {

using run::ImageResult;
using run::ResultOf;

constexpr float kNan = NAN;
constexpr float kInf = INFINITY;

TEST_SUITE("cpu") {
  TEST_CASE("probabilities and loss of logits, by hand") {
    // e^0 + e^ln2 + e^ln5 = 8.
    const float logits[] = {0, std::log(2.0f), std::log(5.0f)};
    const ImageResult r = ResultOf(logits, 3, 1);
    CHECK(r.label == 1);
    CHECK(r.prediction == 2);
    CHECK(r.rank == 2);
    CHECK(r.probability == doctest::Approx(5.0 / 8).epsilon(1e-7));
    CHECK(r.label_probability == doctest::Approx(2.0 / 8).epsilon(1e-7));
    CHECK(r.loss == doctest::Approx(std::log(4.0)).epsilon(1e-7));
    const float far[] = {-60000, 60000};  // no overflow on the way
    CHECK(ResultOf(far, 2, 0).loss == 120000);
    CHECK(ResultOf(far, 2, 0).label_probability == 0);
    CHECK(ResultOf(far, 2, 1).loss == 0);
  }

  TEST_CASE("of equal logits the first counts as the largest") {
    const float logits[] = {1, 3, 3, 3, 2};
    CHECK(ResultOf(logits, 5, 1).prediction == 1);
    for (const auto& [label, rank] : {std::pair{0, 5}, {1, 1}, {2, 2}, {3, 3}, {4, 4}}) {
      CAPTURE(label);
      CHECK(ResultOf(logits, 5, label).rank == rank);
    }
    const float low[] = {-kInf, -kInf};
    CHECK(ResultOf(low, 2, 1).prediction == 0);
    CHECK(ResultOf(low, 2, 1).rank == 2);
  }

  TEST_CASE("a NaN is never the largest, and a label whose logit is one is no hit") {
    const float logits[] = {kNan, 1, kNan, 2};
    const ImageResult r = ResultOf(logits, 4, 1);
    CHECK(r.prediction == 3);
    CHECK(r.rank == 2);
    CHECK(std::isnan(r.loss));
    CHECK(std::isnan(r.probability));
    CHECK(ResultOf(logits, 4, 0).rank == 0);
    const float none[] = {kNan, kNan};
    CHECK(ResultOf(none, 2, 1).prediction == -1);
    CHECK(ResultOf(none, 2, 1).rank == 0);
  }

  TEST_CASE("ranks are places in a stable sort, largest first") {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
      const int classes = 2 + static_cast<int>(random() % 12);
      std::vector<float> logits(static_cast<std::size_t>(classes));
      for (float& z : logits) z = static_cast<float>(random() % 5) / 4;  // many are equal
      std::vector<int> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
      });
      for (int place = 0; place < classes; ++place) {
        const int label = order[static_cast<std::size_t>(place)];
        const ImageResult r = ResultOf(logits.data(), classes, label);
        CHECK(r.rank == place + 1);
        CHECK(r.prediction == order.front());
      }
    }
  }
}

}  // namespace
}  // namespace ada::testing
