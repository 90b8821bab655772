// Sums of branches of a batch that ranks share, each with a device: the scale, the halvings and the
// values of one process that has the whole batch.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "cuda/on_both.h"
#include "parallel/thread_world.h"
#include "step/team.h"

namespace ada::testing {
namespace {

using backend::Gradient;
using backend::test::Lab;
using backend::test::Values;

constexpr std::int64_t kRanks = 3, kRows = 2;  // of a rank
const Shape kImage = {1, 4, 6, 17};

struct Branch {
  std::vector<float> largest;  // by image
  float scale;
};
struct Case {
  std::vector<Branch> branches;
  bool reference = false;
};
struct Made {
  Values sum;
  float scale = 0;
  scaling::ScaleDecision decision;
};

Values ValuesOf(const Branch& branch, std::int64_t first, std::int64_t rows) {
  Values values;
  for (std::int64_t row = first; row < first + rows; ++row)
    for (std::int64_t i = 0; i < kImage.per_image(); ++i)
      values.push_back(i == 3 ? branch.largest[static_cast<std::size_t>(row)]
                              : static_cast<float>((i * 7 + row) % 11) / 16);
  return values;
}

// Rows first .. first + rows; the third call is replayed. told: the branches' statistics tell their
// largest magnitudes, else they are looked for.
Made Sum(std::unique_ptr<backend::Backend> made, const Case& c, bool told, std::int64_t first,
         std::int64_t rows) {
  Lab lab(std::move(made));
  Shape shape = kImage;
  shape.n = rows;
  backend::BranchSumSpec spec;
  for (const Branch& branch : c.branches) {
    const Values values = ValuesOf(branch, first, rows);
    Gradient g = lab.MakeGradient(shape, kFp16, branch.scale, values);
    TensorStats stats;
    for (const float value : values)
      if (!(std::fabs(value) <= stats.max_abs)) stats.max_abs = std::fabs(value);
    g.moments = nullptr, g.stats = told ? lab.Share(stats) : nullptr;
    spec.branches.push_back(g);
  }
  spec.sum = lab.MakeGradient(shape, kFp16);
  spec.decision = lab.Share<scaling::ScaleDecision>();
  spec.reference = c.reference;
  const auto op = lab->Make(spec);
  backend::Pass pass;
  pass.rows = static_cast<int>(rows);
  for (int call = 0; call < 3; ++call) lab->Run(1, pass, [&] { op->Backward(pass); });
  Made result;
  result.sum.resize(static_cast<std::size_t>(shape.numel()));
  lab->Read(spec.sum.tensor, rows, result.sum.data());
  result.scale = lab.Fetched(spec.sum.scale);
  result.decision = lab.Fetched(spec.decision);
  return result;
}

TEST_SUITE("cpu") {
  TEST_CASE("branches of ranks: the scale and the halvings of the whole batch") {
    const std::vector<Case> cases = {
        {{{{1, 1, 1, 1, 500, 1}, 8}, {{2, 2, 900, 2, 2, 2}, 1024}}},
        {{{{1, 1, 1, 40000, 1, 1}, 8}, {{1, 1, 1, 40000, 1, 1}, 8}}},
        {{{{1, 60000, 1, 1, 1, 1}, 8}, {{1, 60000, 1, 1, 1, 1}, 8}, {{1, 60000, 1, 1, 1, 1}, 8}}},
        {{{{1, 1, 1, 1, 1, 60000}, 8}, {{1, 1, 1, 1, 1, -60000}, 8}}},
        {{{{1, 40000, 1, 1, 1, 1}, 8}, {{1, 40000, 1, 1, NAN, 1}, 8}}},
        {{{{1, 1, INFINITY, 1, 1, 1}, 8}, {{1, 1, 1, 1, 1, 1}, 64}}},
        {{{{1, 1, 1, 1, 500, 1}, 8}, {{2, 2, 900, 2, 2, 2}, 1024}}, true},
        {{{{1, 1, 1, 1, NAN, 1}, 8}, {{2, 2, 900, 2, 2, 2}, 1024}}, true}};
    int halved = 0;
    for (std::size_t k = 0; k < 2 * cases.size(); ++k) {
      CAPTURE(k);
      const Case& c = cases[k / 2];
      const bool told = k % 2 == 1;
      const Made whole = Sum(backend::MakeHostExecutedBackend(), c, told, 0, kRanks * kRows);
      halved += whole.decision.halvings > 0;
      std::vector<Made> parts(kRanks);
      const auto errors = RunRanks(kRanks, [&](parallel::World& world) {
        step::Team team(world, {});
        parts[static_cast<std::size_t>(world.rank())] =
            Sum(backend::MakeHostExecutedBackend({}, team.communicators()), c, told,
                world.rank() * kRows, kRows);
      });
      for (const auto& error : errors) REQUIRE(!error);
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        CAPTURE(rank);
        const Made& part = parts[rank];
        const bool no_scale = std::isnan(whole.scale);
        CHECK((no_scale ? std::isnan(part.scale) : part.scale == whole.scale));
        CHECK(part.decision.halvings == whole.decision.halvings);
        CHECK(part.decision.error == whole.decision.error);
        for (std::size_t i = 0; i < part.sum.size(); ++i) {
          const float of_whole = whole.sum[rank * part.sum.size() + i];
          CHECK((std::isnan(of_whole) ? std::isnan(part.sum[i]) : part.sum[i] == of_whole));
        }
      }
    }
    CHECK(halved >= 4);
  }
}

}  // namespace
}  // namespace ada::testing
