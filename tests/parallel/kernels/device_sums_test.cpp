// Sums over ranks that each have a device, on the host executor: the definition's bytes, whatever
// the buckets, launched or replayed; what 16 bits lose on the way, counted.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "parallel/made_up_gradients.h"
#include "parallel/thread_world.h"
#include "step/team.h"

namespace ada::testing {
namespace {

constexpr int kRounds = 4;  // launched, recorded and replayed, replayed twice

struct Device {
  explicit Device(parallel::World& world)
      : team(world, {}), backend(backend::MakeHostExecutedBackend({}, team.communicators())) {}
  Tensor Make(std::int64_t values) {
    Tensor tensor{{1, 1, 1, values}, kFp32, Storage::kF32, nullptr};
    tensor.data = backend->Allocate(tensor.bytes());
    return tensor;
  }
  void Put(const Tensor& tensor, const std::vector<float>& values) {
    backend->Upload(tensor.data, values.data(), tensor.bytes());
  }
  std::vector<float> Get(const Tensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
    backend->Download(values.data(), tensor.data, tensor.bytes());
    return values;
  }

  step::Team team;
  std::unique_ptr<backend::Backend> backend;
};

// What each rank gets in the last of the rounds.
struct Results {
  std::vector<Values> sums, averages;
  std::vector<TensorStats> lost;  // of all ranks
  std::int64_t buckets = 0;
};
Results Summed(int ranks, std::int64_t bucket, const NumberFormat& format, float factor) {
  Results results;
  results.sums.resize(static_cast<std::size_t>(ranks));
  results.averages = results.sums;
  results.lost.resize(kSizes.size());
  std::mutex mutex;
  const auto errors = RunRanks(ranks, [&](parallel::World& world) {
    Device device(world);
    backend::GradientSumsSpec spec;
    for (const std::int64_t size : kSizes) spec.gradients.push_back(device.Make(size));
    for (const std::int64_t size : {std::int64_t{5}, std::int64_t{300}})
      spec.averages.push_back(device.Make(size));
    spec.bucket_bytes = bucket, spec.transport = format;
    const auto sums = device.backend->MakeGradientSums(spec);
    REQUIRE(sums != nullptr);
    const int rank = world.rank();
    for (int round = 0; round < kRounds; ++round) {
      const Values mine = MadeUp(rank, round);
      for (std::size_t g = 0; g < mine.size(); ++g) device.Put(spec.gradients[g], mine[g]);
      device.Put(spec.averages[0], mine[3]);
      device.Put(spec.averages[1], std::vector<float>(mine[1].begin(), mine[1].begin() + 300));
      backend::Pass pass;
      pass.rows = 1, pass.loss_scale = factor;
      pass.share = static_cast<float>(rank + 1) / static_cast<float>(ranks * (ranks + 1) / 2);
      device.backend->Run(1, pass, [&] {
        for (std::size_t g = 0; g < kSizes.size(); ++g) sums->Take(static_cast<int>(g));
        sums->Finish();
      });
    }
    const auto r = static_cast<std::size_t>(rank);
    for (const Tensor& tensor : spec.gradients) results.sums[r].push_back(device.Get(tensor));
    for (const Tensor& tensor : spec.averages) results.averages[r].push_back(device.Get(tensor));
    const std::vector<TensorStats> lost = sums->Lost();
    const std::lock_guard lock(mutex);
    results.buckets = sums->buckets();
    for (std::size_t g = 0; g < lost.size(); ++g) {
      TensorStats& all = results.lost[g];
      all.numel += lost[g].numel, all.zeros_before += lost[g].zeros_before;
      all.underflow += lost[g].underflow, all.overflow += lost[g].overflow;
      all.subnormal += lost[g].subnormal;
    }
  });
  for (const auto& error : errors) REQUIRE(!error);
  return results;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i])))
      return false;
  return true;
}

TEST_SUITE("cpu") {
  TEST_CASE("device sums: fp32 sums and means of a loop over ranks, whatever the buckets") {
    for (const int ranks : {2, 3, 7})
      for (const std::int64_t bucket : {4, 2000, 1 << 20}) {
        CAPTURE(ranks);
        CAPTURE(bucket);
        const Values expected = Expected(ranks, kRounds - 1, kFp32, 1);
        std::vector<float> mean(300);
        for (int rank = 0; rank < ranks; ++rank) {
          const float share =
              static_cast<float>(rank + 1) / static_cast<float>(ranks * (ranks + 1) / 2);
          const Values part = MadeUp(rank, kRounds - 1);
          for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += part[1][i] * share;
        }
        const Results results = Summed(ranks, bucket, kFp32, 1);
        CHECK(results.buckets > (bucket == 4 ? 3 : 0));
        for (std::size_t rank = 0; rank < results.sums.size(); ++rank) {
          for (std::size_t g = 0; g < kSizes.size(); ++g)
            CHECK(SameBits(results.sums[rank][g], expected[g]));
          CHECK(results.averages[rank][1] == mean);
          CHECK(results.averages[rank] == results.averages[0]);
        }
      }
  }

  TEST_CASE("device sums: 16-bit transport rounds each part and the sum, and counts both") {
    for (const NumberFormat& format : {kFp16, kBf16})
      for (const float factor : {1.0f, 1024.0f, 65536.0f}) {
        const int ranks = 3;
        CAPTURE(FormatName(format));
        CAPTURE(factor);
        const Values expected = Expected(ranks, kRounds - 1, format, factor);
        const Results results = Summed(ranks, 2048, format, factor);
        for (const Values& got : results.sums)
          for (std::size_t g = 0; g < got.size(); ++g) CHECK(SameBits(got[g], expected[g]));
        std::int64_t overflows = 0;
        for (std::size_t g = 0; g < kSizes.size(); ++g) {
          const TensorStats naive = ExpectedLoss(ranks, kRounds - 1, format, factor, g);
          CHECK(results.lost[g].numel == naive.numel);
          CHECK(results.lost[g].zeros_before == naive.zeros_before);
          CHECK(results.lost[g].underflow == naive.underflow);
          CHECK(results.lost[g].overflow == naive.overflow);
          CHECK(results.lost[g].subnormal == naive.subnormal);
          overflows += naive.overflow;
        }
        if (format == kFp16 && factor == 65536) CHECK(overflows > 0);
      }
  }

  // NCCL's messages are recorded by all or by none. Messages are asked for in variant 1 alone.
  TEST_CASE("device sums: where one rank cannot record its messages, none does") {
    constexpr int kRuns = 5;
    std::vector<int> with_messages(2), without(2);
    std::vector<std::vector<std::string>> warnings(2);
    const auto errors = RunRanks(2, [&](parallel::World& world) {
      Device device(world);
      const auto rank = static_cast<std::size_t>(world.rank());
      const Tensor gradient = device.Make(64);
      const auto sums = device.backend->MakeGradientSums({{gradient}, {}, 1 << 20, kFp32});
      const auto run = [&](std::uint64_t variant, int& bodies, const auto& body) {
        for (int i = 0; i < kRuns; ++i)
          device.backend->Run(variant, {}, [&] {
            body();
            // The second call of a variant is the one that is recorded.
            if (++bodies == 2 && rank == 1) throw DeviceError("the capture failed");
          });
      };
      device.Put(gradient, std::vector<float>(64, 1.0f));
      run(1, with_messages[rank], [&] {
        sums->Take(0);
        sums->Finish();
      });
      CHECK(device.Get(gradient) == std::vector<float>(64, std::exp2f(kRuns)));
      run(2, without[rank], [] {});
      warnings[rank] = device.backend->Warnings();
    });
    for (const auto& error : errors) REQUIRE(!error);
    CHECK(with_messages == std::vector<int>{kRuns + 1, kRuns + 1});
    CHECK(without == std::vector<int>{2, kRuns + 1});
    REQUIRE(warnings[0].size() == 1);
    CHECK(warnings[0][0].find("another process could not") != std::string::npos);
    CHECK(warnings[1][0].find("the capture failed") != std::string::npos);
  }

  TEST_CASE("device sums: a rank that ends ends the others") {
    const auto errors = RunRanks(2, [](parallel::World& world) {
      Device device(world);
      const auto sums = device.backend->MakeGradientSums({{device.Make(64)}, {}, 1 << 20, kFp32});
      if (world.rank() == 1) throw DeviceError("gone");
      device.backend->Run(1, {}, [&] {
        sums->Take(0);
        sums->Finish();
      });
    });
    REQUIRE(errors[0]);
    CHECK_THROWS_WITH_AS(std::rethrow_exception(errors[0]), "another rank has ended", DeviceError);
  }
}

}  // namespace
}  // namespace ada::testing
