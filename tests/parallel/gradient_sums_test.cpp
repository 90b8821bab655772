// Sums of gradients over ranks: fp32 in the order of ranks, whatever the buckets; in 16 bits with
// each rounding where it belongs, and counted.
#include "parallel/gradient_sums.h"

#include <doctest/doctest.h>

#include <vector>

#include "parallel/made_up_gradients.h"
#include "parallel/thread_world.h"

namespace ada::testing {
namespace {

// What each rank gets in the last of three rounds.
std::vector<Values> Summed(int ranks, std::int64_t bucket, const NumberFormat& format, float factor,
                           std::vector<TensorStats>* lost = nullptr,
                           const parallel::Reduction& reduction = {}) {
  std::vector<Values> got(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  const auto errors = RunRanks(ranks, [&](parallel::World& world) {
    parallel::GradientSums sums(world.large(), kSizes, bucket, format, reduction);
    for (int round = 0; round < 3; ++round) {
      const Values mine = MadeUp(world.rank(), round);
      for (std::size_t g = 0; g < mine.size(); ++g)
        sums.Add(static_cast<int>(g), mine[g].data(), factor);
      sums.Finish();
    }
    Values& result = got[static_cast<std::size_t>(world.rank())];
    for (std::size_t g = 0; g < kSizes.size(); ++g) {
      result.emplace_back(static_cast<std::size_t>(kSizes[g]));
      sums.Take(static_cast<int>(g), result.back().data(), factor);
      if (lost == nullptr) continue;
      const std::lock_guard lock(mutex);
      lost->resize(kSizes.size());
      const TensorStats stats = sums.lost(static_cast<int>(g));
      (*lost)[g].numel += stats.numel, (*lost)[g].underflow += stats.underflow;
      (*lost)[g].overflow += stats.overflow, (*lost)[g].subnormal += stats.subnormal;
    }
  });
  for (const auto& error : errors) REQUIRE(!error);
  return got;
}

TEST_SUITE("cpu") {
  TEST_CASE("fp32 sums are those of a loop over ranks, whatever the buckets") {
    for (const int ranks : {1, 2, 3, 4, 7})
      for (const std::int64_t bucket : {4, 1000, 1 << 20}) {
        CAPTURE(ranks);
        CAPTURE(bucket);
        const Values expected = Expected(ranks, 2, kFp32, 1);
        for (const Values& got : Summed(ranks, bucket, kFp32, 1)) CHECK(got == expected);
      }
  }

  TEST_CASE("16-bit transport rounds each part and the sum, and counts both") {
    for (const NumberFormat& format : {kFp16, kBf16})
      for (const float factor : {1.0f, 1024.0f, 65536.0f}) {
        const int ranks = 3;
        CAPTURE(FormatName(format));
        CAPTURE(factor);
        std::vector<TensorStats> lost;
        const Values expected = Expected(ranks, 2, format, factor);
        for (const Values& got : Summed(ranks, 2048, format, factor, &lost))
          for (std::size_t g = 0; g < got.size(); ++g)
            for (std::size_t i = 0; i < got[g].size(); ++i)
              CHECK((got[g][i] == expected[g][i] ||
                     (std::isnan(got[g][i]) && std::isnan(expected[g][i]))));
        std::int64_t overflows = 0;
        for (std::size_t g = 0; g < kSizes.size(); ++g) {
          const TensorStats naive = ExpectedLoss(ranks, 2, format, factor, g);
          CHECK(lost[g].numel == naive.numel);
          CHECK(lost[g].underflow == naive.underflow);
          CHECK(lost[g].overflow == naive.overflow);
          CHECK(lost[g].subnormal == naive.subnormal);
          overflows += naive.overflow;
        }
        if (format == kFp16 && factor == 65536) CHECK(overflows > 0);
      }
  }

  TEST_CASE("a ring's sums begin at another rank in each piece, whatever the buckets") {
    for (const int ranks : {1, 2, 3, 4, 7})
      for (const std::int64_t bucket : {4, 1000, 1 << 20})
        for (const NumberFormat& format : {kFp32, kBf16, kFp16}) {
          CAPTURE(ranks);
          CAPTURE(bucket);
          const Values expected = ExpectedOfRing(ranks, 2, format);
          std::vector<TensorStats> lost;
          for (const Values& got : Summed(ranks, bucket, kFp32, 1, &lost, {true, format}))
            CHECK(got == expected);
          for (std::size_t g = 0; g < kSizes.size(); ++g)
            CHECK(lost[g].numel == (format == kFp32 ? 0 : ranks * kSizes[g]));
        }
  }

  TEST_CASE("the largest magnitude of what was sent is by bit pattern: NaN stays, then inf") {
    const auto errors = RunRanks(1, [](parallel::World& world) {
      for (const bool has_nan : {false, true}) {
        parallel::GradientSums sums(world.large(), {4}, 1 << 20, kFp16);
        const std::vector<float> values = {2, has_nan ? NAN : 1.0f, -INFINITY, 3};
        sums.Add(0, values.data());
        sums.Finish();
        const float largest = sums.lost(0).max_abs;
        CHECK((has_nan ? std::isnan(largest) : std::isinf(largest)));
      }
    });
    for (const auto& error : errors) REQUIRE(!error);
  }

  TEST_CASE("an error of the communicator comes out of Finish") {
    const auto errors = RunRanks(2, [](parallel::World& world) {
      parallel::GradientSums sums(world.large(), {64}, 1 << 20);
      const std::vector<float> values(64, 1.0f);
      if (world.rank() == 1) throw DeviceError("gone");
      sums.Add(0, values.data());
      sums.Finish();
    });
    REQUIRE(errors[0]);
    CHECK_THROWS_WITH_AS(std::rethrow_exception(errors[0]), "another rank has ended", DeviceError);
  }

  TEST_CASE("sums at once are those of a loop as well") {
    const auto errors = RunRanks(3, [](parallel::World& world) {
      std::vector<float> values = MadeUp(world.rank(), 2)[1];
      parallel::SumOverRanks(world.small(), values);
      CHECK(values == Expected(3, 2, kFp32, 1)[1]);
    });
    for (const auto& error : errors) CHECK(!error);
  }
}

}  // namespace
}  // namespace ada::testing
