// What `ada-train inspect` shows people: a line a tensor and a line a layer, or all of it.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "study/inspected.h"

namespace ada::testing {
namespace {

TEST_SUITE("cpu") {
  TEST_CASE("the terminal view: bars of at most 80 columns, integers named, names made harmless") {
    std::vector<float> values;
    for (int e = -40; e <= 20; ++e)
      values.insert(values.end(), e % 7 == 0 ? 1 : 30, std::ldexp(1.5f, e));
    const auto n = static_cast<std::int64_t>(values.size());
    const Outcome o = Inspect({F32("fc.dy", {n, 1}, values),
                               F32("fc.w", {1, 2}, {1, -2}),
                               F32("red \x1b[31m", {1}, {1e-8f}),
                               {"steps", "I64", {1}, std::string(8, '\1')}},
                              {"--all"});
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(o.err.empty());
    for (const std::string& line : Lines(o.out)) {
      CAPTURE(line);
      CHECK(line.size() <= 80);
    }
    CHECK(!Contains(o.out, "\x1b"));
    for (const char* part :
         {"format fp16: largest 65504, normal from 2^-14, subnormal from 2^-24", "2^-24  s |####",
          "2^-25  - |####", "2^-14    |", "2^16   + |####", "steps  I64 [1]  skipped",
          "scales of fc: linear, fan 1, scale_in 1", "approx_range"})
      CHECK_MESSAGE(Contains(o.out, part), part);
  }

  TEST_CASE("the short view: a line a tensor, worst first, a line a layer; --all has the rest") {
    const float g = 0x1p-20f, v = 0x1p-4f;
    const std::vector<RawTensor> tensors = {
        F32("fc.w", {2, 3}, {v, v, v, v, v, -v}),
        F32("fc.dy", {2, 2}, {g, -g, g, g}),
        F32("kept", {2}, {1, 0}),
        F32("half", {4}, {1e-9f, 1, 0, 0}),
        F32("dead.dx", {3}, {0, 0, 0}),
        F32("none", {3}, {0, 0, 0}),
        F32("burst", {4}, {1e9f, kInf, kNan, 1}),
        {"steps", "I64", {1}, std::string(8, '\1')},
    };
    const Outcome o = Inspect(tensors, {});
    ADA_REQUIRE_EXIT(o, 0);
    const std::vector<std::string> lines = Lines(o.out);
    const auto titles = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.rfind("  tensor  ", 0) == 0;
    });
    REQUIRE(lines.end() - titles > 8);
    std::vector<std::string> order;
    for (auto line = titles + 1; line != titles + 8; ++line)
      order.push_back(line->substr(2, line->find(' ', 2) - 2));
    CHECK(order ==
          std::vector<std::string>{"dead.dx", "burst", "half", "fc.dy", "fc.w", "kept", "none"});
    CHECK(Contains(titles[1], "all zero"));
    CHECK(Contains(titles[3], "50.000"));
    CHECK(Contains(o.out, "steps  I64 [1]  skipped"));
    CHECK(Contains(o.out, "fc     linear    2  1"));
    CHECK(!Contains(o.out, "#"));
    for (const std::string& line : lines) CHECK(line.size() <= 100);
    const Outcome all = Inspect(tensors, {"--all"});
    ADA_REQUIRE_EXIT(all, 0);
    CHECK(Contains(all.out, "####"));
    CHECK(Contains(all.out, "scales of fc: linear, fan 2, scale_in 1"));
    ADA_CHECK_EXIT(Inspect(tensors, {"--all", "--csv", "counts"}), 2);
  }
}

}  // namespace
}  // namespace ada::testing
