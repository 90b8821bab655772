// Layers of sequences against recordings of tests/golden/text: values, counts, decisions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

#include "backend/op_bench.h"
#include "golden_table.h"
#include "io/tensor_files/safetensors.h"

namespace ada::backend::test {
namespace {

using ada::testing::GoldenRow;

NumberFormat FormatOf(const std::string& name) {
  return name == "fp16" ? kFp16 : name == "bf16" ? kBf16 : kFp32;
}

std::vector<std::string> Split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(part);
  return parts;
}

// One recorded case.
struct Case {
  const GoldenRow& row;
  const SafetensorsFile& file;

  const std::string& Text(const char* column) const { return row.at(column); }
  double Number(const char* column, double otherwise = 0) const {
    return Text(column).empty() ? otherwise : std::stod(Text(column));
  }
  int Whole(const char* column) const { return static_cast<int>(Number(column)); }
  NumberFormat format() const { return FormatOf(Text("format")); }
  std::string Name(const char* tensor) const { return Text("case") + "." + tensor; }
  bool Has(const char* tensor) const { return file.Find(Name(tensor)) != nullptr; }
  Values Read(const char* tensor) const { return file.ReadF32(Name(tensor)); }
  // The shape of [images, positions, channels].
  Shape ShapeOf(const char* tensor) const {
    const auto& d = file.Find(Name(tensor))->shape;
    return d.size() == 2 ? Shape{d[0], d[1], 1, 1} : Shape{d[0], d[1], 1, d[2]};
  }
  Tensor Make(Bench& bench, const char* tensor) const {
    return bench.Make(ShapeOf(tensor), format(), Read(tensor));
  }
};

void ForCases(const std::string& part, const std::string& op,
              const std::function<void(const Case&)>& body) {
  std::vector<std::string> folders = {std::string(ADA_SOURCE_DIR) + "/tests/golden/text"};
  if (const char* more = std::getenv("ADA_GOLDEN_TEXT")) folders.emplace_back(more);
  for (const std::string& folder : folders) {
    const auto table = ada::testing::ReadTable(folder + "/" + part + ".csv");
    const SafetensorsFile file = SafetensorsFile::Open(folder + "/" + part + ".safetensors");
    int cases = 0;
    for (const GoldenRow& row : table.rows) {
      if (row.at("op") != op) continue;
      CAPTURE(folder);
      CAPTURE(row.at("case"));
      body({row, file});
      ++cases;
    }
    REQUIRE(cases > 0);
  }
}

double LargestOf(const Values& values) {
  double largest = 0;
  for (const float v : values) largest = std::max(largest, std::fabs(static_cast<double>(v)));
  return largest;
}
// Within `bound` of the largest magnitude, or of 1e-3 of dy's. A NaN matches a NaN.
void CheckNear(const char* what, const Values& got, const Values& want, double bound,
               double largest_dy = 0) {
  CAPTURE(what);
  REQUIRE(got.size() == want.size());
  const double scale = std::max({LargestOf(want), 1e-3 * largest_dy, 1e-30});
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  CHECK(worst <= bound * scale);
}
// Equal, but for at most one value in a hundred (or `others` of them), which is a neighbor.
void CheckRounded(const char* what, const Case& c, const Tensor& tensor, const Values& want,
                  int others = 1) {
  CAPTURE(what);
  const Values got = Bench::Get(tensor);
  REQUIRE(got.size() == want.size());
  int apart = 0;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;
    ++apart;
    const double step = std::max(
        std::fabs(static_cast<double>(want[i])) * std::ldexp(1.0, -c.format().mantissa_bits),
        c.format().smallest_subnormal());
    worst = std::max(worst,
                     std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])) / step);
  }
  CHECK(apart <= std::max<int>(others, static_cast<int>(got.size() / 100)));
  CHECK(worst <= 1.01);
}
void CheckCounts(const Case& c, const std::map<std::string, const TensorStats*>& of) {
  for (const std::string& entry : Split(c.Text("counts"), ' ')) {
    const std::string tensor = entry.substr(0, entry.find(':'));
    CAPTURE(tensor);
    REQUIRE(of.count(tensor) == 1);
    const std::vector<std::string> want = Split(entry.substr(entry.find(':') + 1), '/');
    const TensorStats& got = *of.at(tensor);
    CHECK(got.numel == std::stoll(want[0]));
    CHECK(got.zeros_before == std::stoll(want[1]));
    CHECK(got.underflow == std::stoll(want[2]));
    CHECK(got.overflow == std::stoll(want[3]));
  }
}

// --- Attention ---

struct AttentionBench {
  AttentionBench(Bench& bench, const Case& c, bool fused) {
    const NumberFormat format = c.format();
    spec.layer = "a";
    spec.heads = c.Whole("heads"), spec.kv_heads = c.Whole("kv_heads");
    spec.causal = c.Text("causal") == "True";
    const Shape q = c.ShapeOf("q"), k = c.ShapeOf("k");
    if (fused) {
      const Shape all{q.n, q.h, 1, q.c + 2 * k.c};
      spec.x = {bench.Make(all, format, Interleaved(c, q, k))};
    } else {
      spec.x = {c.Make(bench, "q"), c.Make(bench, "k"), c.Make(bench, "v")};
    }
    spec.y = bench.Make(q, format);
    spec.y_stats = bench.Stats(), spec.p_stats = bench.Stats(), spec.ds_stats = bench.Stats();
    spec.p_format = spec.ds_format = format;
    spec.rounds_p = c.Text("probabilities") != "fp32";
    spec.rounds_ds = c.Text("score_gradients") != "fp32";
    const auto scale = static_cast<float>(c.Number("S", 1));
    spec.dy = bench.MakeGradient(q, format, scale);
    Bench::Set(spec.dy.tensor, c.Read("dy"));
    *spec.dy.moments = MomentsOf(c.Read("dy"));
    spec.dx = {bench.MakeGradient(q, format), bench.MakeGradient(k, format),
               bench.MakeGradient(k, format)};
    spec.ds_scale = &ds_scale;
    const double width = static_cast<double>(q.c) / spec.heads;
    const double group = static_cast<double>(spec.heads) / spec.kv_heads;
    const double fans[] = {static_cast<double>(q.h) * group, width, static_cast<double>(k.h),
                           static_cast<double>(q.h) * group};
    for (int i = 0; i < 4; ++i) {
      SetRule(c, fans[i], scalers[i].rule);
      spec.scalers[static_cast<std::size_t>(i)] = &scalers[i];
    }
    op = bench->Make(spec);
  }
  static Values Interleaved(const Case& c, const Shape& q, const Shape& k) {
    const Values parts[] = {c.Read("q"), c.Read("k"), c.Read("v")};
    Values all;
    for (std::int64_t row = 0; row < q.n * q.h; ++row)
      for (int i = 0; i < 3; ++i) {
        const auto channels = static_cast<std::ptrdiff_t>(i == 0 ? q.c : k.c);
        all.insert(all.end(), parts[i].begin() + row * channels,
                   parts[i].begin() + (row + 1) * channels);
      }
    return all;
  }
  static TensorMoments MomentsOf(const Values& values) {
    TensorMoments m;
    double square = 0, sum = 0;
    m.min = m.max = values[0];
    for (const float v : values) {
      square += static_cast<double>(v) * static_cast<double>(v), sum += static_cast<double>(v);
      m.min = std::min(m.min, v), m.max = std::max(m.max, v);
    }
    m.mean = sum / static_cast<double>(values.size());
    m.mean_square = square / static_cast<double>(values.size());
    return m;
  }
  static void SetRule(const Case& c, double fan, scaling::LayerRule& rule) {
    rule.u_max = c.format().largest();
    rule.fan = fan;
    if (c.Text("policy") != "adaptive") return;
    rule.method = scaling::LayerMethod::kApproxRange;  // of underflow_target 1e-3, as recorded
    REQUIRE(c.Number("n") == rule.underflow_target);
    rule.u_min = c.Number("u_min");
    rule.scale_upper_bound = c.Number("SB"), rule.accum_upper_bound = c.Number("AB");
  }
  void Run() {
    const Pass pass = MakePass(static_cast<int>(spec.y.shape.n));
    op->Forward(pass);
    op->Backward(pass);
  }

  AttentionSpec spec;
  float ds_scale = 0;
  scaling::LayerScaler scalers[4];
  std::unique_ptr<Op> op;
};

void CheckDecisions(const Case& c, const AttentionBench& bench) {
  const std::map<std::string, int> numbers = {{"dv", 0}, {"ds", 1}, {"dq", 2}, {"dk", 3}};
  for (const std::string& entry : Split(c.Text("decisions"), ' ')) {
    CAPTURE(entry);
    const std::vector<std::string> want = Split(entry, '/');
    const scaling::ScaleDecision& got = bench.scalers[numbers.at(want[0])].decision;
    CHECK(static_cast<double>(got.scale_in) == std::stod(want[1]));
    if (want[2] != "None") CHECK(got.unbound == doctest::Approx(std::stod(want[2])).epsilon(0.02));
    CHECK(static_cast<double>(got.alpha) == std::stod(want[5]));
    CHECK(static_cast<double>(got.scale_out) == std::stod(want[6]));
    CHECK(scaling::LimitName(got.limit) == want[7]);
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("attention: values and gradients are PyTorch's") {
    ForCases("ops", "attention", [](const Case& c) {
      if (!c.Text("scale").empty()) return;  // our scale is only 1 / sqrt(width)
      Bench bench;
      AttentionBench a(bench, c, false);
      a.Run();
      const double dy = LargestOf(c.Read("dy"));
      const double bound = c.Text("case").find("saturated") == std::string::npos ? 1e-5 : 1e-2;
      CheckNear("y", Bench::Get(a.spec.y), c.Read("y"), 1e-5);
      CheckNear("dq", Bench::Get(a.spec.dx[0].tensor), c.Read("dq"), bound, dy);
      CheckNear("dk", Bench::Get(a.spec.dx[1].tensor), c.Read("dk"), bound, dy);
      CheckNear("dv", Bench::Get(a.spec.dx[2].tensor), c.Read("dv"), 1e-5, dy);
    });
  }

  TEST_CASE("attention: rounding points, counts and decisions are the recording's") {
    ForCases("rounded", "attention", [](const Case& c) {
      Bench bench;
      AttentionBench a(bench, c, false);
      a.Run();
      CheckRounded("y", c, a.spec.y, c.Read("y"));
      const char* const names[] = {"dq", "dk", "dv"};
      const double dy = LargestOf(c.Read("dy"));
      for (std::size_t i = 0; i < 3; ++i) {
        const Gradient& dx = a.spec.dx[i];
        // A single rounding of p or ds moves the sums that it is in.
        CheckNear(names[i], Bench::Get(dx.tensor), c.Read(names[i]), 1e-2, dy);
        const std::string scale = names[i] + std::string(":");
        for (const std::string& entry : Split(c.Text("S_out"), ' '))
          if (entry.rfind(scale, 0) == 0)
            CHECK(static_cast<double>(*dx.scale) == std::stod(entry.substr(scale.size())));
      }
      CheckCounts(c, {{"p", a.spec.p_stats},
                      {"y", a.spec.y_stats},
                      {"ds", a.spec.ds_stats},
                      {"dq", a.spec.dx[0].stats},
                      {"dk", a.spec.dx[1].stats},
                      {"dv", a.spec.dx[2].stats}});
      CheckDecisions(c, a);
    });
  }

  TEST_CASE("attention: fused inputs and any number of threads give the same bits") {
    ForCases("rounded", "attention", [](const Case& c) {
      Bench one(1), two(2);
      AttentionBench apart(one, c, false), fused(two, c, true);
      apart.Run();
      fused.Run();
      CheckEqual(fused.spec.y, Bench::Get(apart.spec.y));
      for (std::size_t i = 0; i < 3; ++i) {
        CheckEqual(fused.spec.dx[i].tensor, Bench::Get(apart.spec.dx[i].tensor));
        CHECK(*fused.spec.dx[i].scale == *apart.spec.dx[i].scale);
        CHECK(fused.spec.dx[i].stats->mean == apart.spec.dx[i].stats->mean);
      }
      CHECK(fused.spec.p_stats->mean == apart.spec.p_stats->mean);
    });
  }

  TEST_CASE("attention: kept probabilities are the ones computed anew") {
    // A backend may compute them anew in kernels that add in another order; its own tests say so.
    if (!kTestsCpu) return;
    ForCases("rounded", "attention", [](const Case& c) {
      Bench bench;
      AttentionBench anew(bench, c, false), kept(bench, c, false);
      kept.spec.keeps_probabilities = true;
      kept.op = bench->Make(kept.spec);
      anew.Run();
      kept.Run();
      for (std::size_t i = 0; i < 3; ++i)
        CheckEqual(kept.spec.dx[i].tensor, Bench::Get(anew.spec.dx[i].tensor));
    });
  }

  TEST_CASE("rope turns as PyTorch does, near and far, and rounds once") {
    for (const char* part : {"ops", "rounded"})
      ForCases(part, "rope", [&](const Case& c) {
        Bench bench;
        const Shape given = c.ShapeOf("x");
        const std::int64_t start = c.Whole("start");
        const Shape shape{given.n, start + given.h, 1, given.c};
        const auto behind = [&](const char* tensor) {
          Values values(static_cast<std::size_t>(shape.numel()));
          const Values read = c.Read(tensor);
          std::copy(read.begin(), read.end(),
                    values.end() - static_cast<std::ptrdiff_t>(read.size()));
          return values;
        };
        const auto last = [&](const Tensor& tensor) {
          const Values all = Bench::Get(tensor);
          return Values(all.end() - static_cast<std::ptrdiff_t>(given.numel()), all.end());
        };
        RopeSpec spec;
        spec.heads = c.Whole("heads");
        spec.rotary =
            static_cast<int>(c.Number("rotary", static_cast<double>(given.c / spec.heads)));
        spec.base = c.Number("base", 10000);
        spec.interleaved = c.Text("pairing") == "interleaved";
        spec.x = bench.Make(shape, c.format(), behind("x")), spec.y = bench.Make(shape, c.format());
        spec.y_stats = bench.Stats();
        spec.dy = bench.MakeGradient(shape, c.format(), behind("dy"),
                                     static_cast<float>(c.Number("S", 1)));
        spec.dx = bench.MakeGradient(shape, c.format());
        const auto op = bench->Make(spec);
        op->Forward(MakePass(1));
        op->Backward(MakePass(1));
        const double bound = c.format() == kFp32 ? 1e-6 : 1e-3;
        CheckNear("y", last(spec.y), c.Read("y"), bound);
        CheckNear("dx", last(spec.dx.tensor), c.Read("dx"), bound);
        CHECK(*spec.dx.scale == *spec.dy.scale);
      });
  }

  TEST_CASE("RMS norm and layer norm are PyTorch's, and round once") {
    for (const std::string kind : {"rms_norm", "layer_norm"})
      for (const char* part : {"ops", "rounded"})
        ForCases(part, kind, [&](const Case& c) {
          Bench bench;
          const auto run = [&](auto spec) {
            const Shape shape = c.ShapeOf("x");
            const char* weight = c.Has("w") ? "w" : "weight";
            spec.x = c.Make(bench, "x"), spec.y = bench.Make(shape, c.format());
            spec.y_stats = bench.Stats();
            spec.gamma = bench.Vector(c.Read(weight));
            spec.dgamma = bench.Vector(Values(static_cast<std::size_t>(shape.c)));
            if (kind == "layer_norm") {
              spec.beta = bench.Vector(c.Read(c.Has("b") ? "b" : "bias"));
              spec.dbeta = bench.Vector(Values(static_cast<std::size_t>(shape.c)));
            }
            spec.eps = static_cast<float>(c.Number("eps"));
            spec.dy = bench.MakeGradient(shape, c.format(), c.Read("dy"),
                                         static_cast<float>(c.Number("S", 1)));
            spec.dx = bench.MakeGradient(shape, c.format());
            const auto op = bench->Make(spec);
            op->Forward(MakePass(1));
            op->Backward(MakePass(1));
            const double dy = LargestOf(c.Read("dy"));
            if (c.format() == kFp32) {
              const bool cancels = c.Text("case").find("shifted") != std::string::npos ||
                                   c.Text("case").find("_one") != std::string::npos;
              const double bound = cancels ? 1e-3 : 1e-5;
              CheckNear("y", Bench::Get(spec.y), c.Read("y"), bound);
              CheckNear("dx", Bench::Get(spec.dx.tensor), c.Read("dx"), bound, dy);
              CheckNear("dw", Bench::Get(spec.dgamma), c.Read("dw"), bound, dy);
            } else {
              CheckRounded("y", c, spec.y, c.Read("y"));
              CheckRounded("dx", c, spec.dx.tensor, c.Read("dx"));
              CheckCounts(c, {{"y", spec.y_stats}, {"dx", spec.dx.stats}});
            }
          };
          kind == "rms_norm" ? run(RmsNormSpec()) : run(LayerNormSpec());
        });
  }

  TEST_CASE("embedding gathers, and sums the gradients of a token in the order of its places") {
    for (const char* part : {"ops", "rounded"})
      ForCases(part, "embedding", [&](const Case& c) {
        Bench bench;
        const Shape tokens = c.ShapeOf("tokens");
        const auto dims = c.file.Find(c.Name("w"))->shape;
        const Shape shape{tokens.n, tokens.h, 1, dims[1]};
        EmbeddingSpec spec;
        spec.x = bench.Make(tokens, kFp32);
        const std::vector<std::byte> bytes = c.file.Bytes(c.Name("tokens"));
        std::copy(bytes.begin(), bytes.end(), spec.x.data);
        const Shape weight{dims[0], 1, 1, dims[1]};
        spec.w = bench.Make(weight, kFp32, c.Read("w"));
        spec.dw = bench.Make(weight, kFp32, Values(static_cast<std::size_t>(weight.numel()), 7));
        spec.dw_stats = bench.Stats(), spec.y_stats = bench.Stats();
        spec.y = bench.Make(shape, c.format());
        spec.dy = bench.MakeGradient(shape, c.format(), c.Read("dy"),
                                     static_cast<float>(c.Number("S", 1)));
        const auto op = bench->Make(spec);
        const Pass pass = MakePass(static_cast<int>(tokens.n));
        op->Forward(pass);
        op->Backward(pass);
        CheckEqual(spec.y, c.Read("y"));
        CheckNear("dw", Bench::Get(spec.dw), c.Read("dw"), 1e-6);
        CHECK(spec.dw_stats->numel == weight.numel());
        if (c.format() != kFp32) CheckCounts(c, {{"y", spec.y_stats}});
      });
  }

  TEST_CASE("softmax of channels is PyTorch's") {
    ForCases("ops", "softmax", [](const Case& c) {
      Bench bench;
      SoftmaxSpec spec;
      const Shape shape = c.ShapeOf("x");
      spec.x = c.Make(bench, "x"), spec.y = bench.Make(shape, kFp32);
      spec.y_stats = bench.Stats();
      spec.dy = bench.MakeGradient(shape, kFp32, c.Read("dy"), 1);
      spec.dx = bench.MakeGradient(shape, kFp32);
      const auto op = bench->Make(spec);
      op->Forward(MakePass(1));
      op->Backward(MakePass(1));
      CheckNear("y", Bench::Get(spec.y), c.Read("y"), 1e-5);
      CheckNear("dx", Bench::Get(spec.dx.tensor), c.Read("dx"), 1e-5, LargestOf(c.Read("dy")));
    });
  }

  TEST_CASE("slices of one gradient meet at one scale, side by side") {
    ForCases("rounded", "join", [](const Case& c) {
      Bench bench;
      BranchSumSpec spec;
      const char* const names[] = {"a", "b", "c"};
      const std::vector<std::string> scales = Split(c.Text("S"), ' ');
      int first = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        const Shape shape = c.ShapeOf(names[i]);
        spec.branches.push_back(
            bench.MakeGradient(shape, c.format(), c.Read(names[i]), std::stof(scales[i])));
        *spec.branches.back().moments = AttentionBench::MomentsOf(c.Read(names[i]));
        spec.first.push_back(first);
        first += static_cast<int>(shape.c);
      }
      const Shape shape = c.ShapeOf("dy");
      spec.sum = bench.MakeGradient(shape, c.format());
      scaling::ScaleDecision decision;
      spec.decision = &decision;
      bench->Make(spec)->Backward(MakePass(1));
      CheckEqual(spec.sum.tensor, c.Read("dy"));
      CheckCounts(c, {{"dy", spec.sum.stats}});
      CHECK(scaling::LimitName(decision.limit) == std::string("branch"));
      CHECK(static_cast<double>(*spec.sum.scale) == std::stod(Split(c.Text("S_out"), ':')[1]));
    });
  }
}

}  // namespace
}  // namespace ada::backend::test
