// Batch norm against the CPU's: alone, with the residual sum and the relu; training, evaluation,
// running averages, gradients, counts. Bit for bit where all pixels are one part, whose fp32 sums
// are added in the CPU's order; else within a bound, and against the definition.
#include <doctest/doctest.h>

#include "backend/cuda/kernels/channel_sums.h"
#include "cuda/on_both.h"
#include "scaling/policies/policies.h"

namespace ada::backend::test {
namespace {

struct Case {
  std::string name;
  Shape x;
  int rows;
  bool addend = false, relu = false;
};
// One part (128 pixels) and one reduction block of the CPU's each.
std::vector<Case> Cases() {
  return {{"1 channel", {3, 5, 5, 1}, 3},
          {"flat, 10 channels", {7, 1, 1, 10}, 7, false, true},
          {"17 channels", {2, 8, 8, 17}, 2},
          {"fewer images than there is room for", {4, 5, 6, 17}, 3, true, true},
          {"33 channels", {4, 4, 7, 33}, 4, true, false},
          {"130 channels", {3, 4, 4, 130}, 3, true, true},
          {"64 channels", {8, 4, 4, 64}, 7, false, true},
          {"a block an image", {1, 8, 16, 128}, 1, true, true}};
}
std::vector<Case> LargeCases() {
  return {{"17 channels", {19, 8, 8, 17}, 19, true, true},
          {"tail of a part", {19, 8, 8, 17}, 13, false, true},
          {"16 channels", {70, 16, 16, 16}, 67, true, false},
          {"images of many parts", {5, 32, 32, 24}, 4, true, true},
          {"parts of 136 pixels", {35, 62, 62, 2}, 35, false, false}};
}
std::size_t Size(const Shape& shape) { return static_cast<std::size_t>(shape.numel()); }

BatchNormSpec MakeSpec(Lab& lab, const Case& c, const NumberFormat& format, float scale,
                       double sigma = 1) {
  const std::size_t n = Size(c.x), k = static_cast<std::size_t>(c.x.c);
  Values x = Normal(n, 1.5, 1), var = Normal(k, 1, 4);
  for (std::size_t i = 0; i < n; ++i) x[i] += 0.1f * static_cast<float>(i % k);
  for (float& v : var) v = 0.5f + v * v;
  BatchNormSpec spec;
  spec.x = lab.Make(c.x, format, x);
  spec.gamma = lab.Vector(Normal(k, 1, 2)), spec.beta = lab.Vector(Normal(k, 1, 3));
  spec.running_mean = lab.Vector(Normal(k, 1, 5)), spec.running_var = lab.Vector(var);
  if (c.addend) spec.addend = lab.Make(c.x, format, Normal(n, 1, 6));
  spec.relu = c.relu;
  spec.out = lab.Make(c.x, format), spec.y_format = format;
  spec.y_stats = lab.Share<TensorStats>();
  if (c.addend) spec.sum_stats = lab.Share<TensorStats>();
  spec.dy = lab.MakeGradient(c.x, format, scale, Normal(n, sigma, 7));
  spec.dx = lab.MakeGradient(c.x, format);
  spec.dgamma = lab.Vector(Values(k)), spec.dbeta = lab.Vector(Values(k));
  return spec;
}
// Roundings of all values with a per-tensor scale.
void GiveScales(Lab& lab, BatchNormSpec& spec) {
  const auto give = [&lab](Tensor& tensor, RoundingStyle& style, float scale) {
    tensor = lab.Make(tensor.shape, tensor.format, {}, /*in_f32=*/true);
    style.per_tensor_scale = lab.Share(scaling::TensorScaler{scale});
  };
  give(spec.out, spec.y_style, 0.37f);
  spec.sum_style.per_tensor_scale = lab.Share(scaling::TensorScaler{2.5f});
  give(spec.dx.tensor, spec.dx.style, 300);
}
Pass PassOf(int rows, bool count = true) {
  Pass pass;
  pass.rows = rows, pass.loss_terms = rows, pass.count = count;
  return pass;
}
void WriteForward(const Lab& lab, const BatchNormSpec& spec, Findings& findings) {
  findings.Add("out", lab, spec.out);
  findings.Add("running mean", lab, spec.running_mean);
  findings.Add("running var", lab, spec.running_var);
  if (spec.y_stats != nullptr) findings.Add("y stats", lab.Fetched(spec.y_stats));
  if (spec.sum_stats != nullptr) findings.Add("sum stats", lab.Fetched(spec.sum_stats));
}
void WriteBackward(const Lab& lab, const BatchNormSpec& spec, Findings& findings) {
  findings.Add("masked dy", lab, spec.dy.tensor);
  if (spec.dx) findings.Add("dx", lab, spec.dx);
  findings.Add("dgamma", lab, spec.dgamma);
  findings.Add("dbeta", lab, spec.dbeta);
}
// A counted step, one that is not, and one that adds to dgamma and dbeta.
void Train(Lab& lab, const Case& c, const BatchNormSpec& spec, Findings& findings) {
  const auto op = lab->Make(spec);
  for (const int step : {0, 1, 2}) {
    Pass pass = PassOf(c.rows, step != 1);
    pass.accumulate = step == 2;
    op->Forward(pass);
    WriteForward(lab, spec, findings);
    op->Backward(pass);
    WriteBackward(lab, spec, findings);
  }
}
// Five steps of small gradients under a rule, the fourth with one that is not finite.
void ChooseScales(Lab& lab, const Case& c, scaling::LayerMethod method, const NumberFormat& format,
                  Findings& findings) {
  BatchNormSpec spec = MakeSpec(lab, c, format, 8, 1e-5);
  if (c.relu) spec.dx.tensor.data = spec.dy.tensor.data;
  scaling::LayerScaler scaler;
  scaler.rule.method = method, scaler.rule.fixed_scale = 24;
  scaler.rule.u_min = format.smallest_subnormal(), scaler.rule.u_max = format.largest();
  scaler.rule.update_interval = 2;
  spec.scaler = lab.Share(scaler);
  spec.dy.all_moments = false;  // the op that made dy is asked for none
  const auto op = lab->Make(spec);
  for (int step = 0; step < 5; ++step) {
    Values dy = Normal(Size(c.x), 2e-5, static_cast<std::uint64_t>(70 + step));
    if (step == 3) dy[5] = std::numeric_limits<float>::infinity();
    lab.Set(spec.dy.tensor, dy);
    op->Forward(PassOf(c.rows, step == 0));
    op->Backward(PassOf(c.rows, step == 0));
    WriteBackward(lab, spec, findings);
    findings.Add(lab.Fetched(spec.scaler), 1e-5);  // fp32 sums of fp16 values
    CHECK(lab.Fetched(spec.dx.scale) == 8 * lab.Fetched(spec.scaler).decision.alpha);
  }
}
void CheckTraining(const Case& c, const NumberFormat& format) {
  CAPTURE(c.name);
  CAPTURE(FormatName(format));
  OnBoth(
      [&](Lab& lab, Findings& findings) { Train(lab, c, MakeSpec(lab, c, format, 16), findings); });
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("batch norm: training, all shapes and formats, alone and with what follows") {
    for (Case c : Cases())
      for (const Kind& kind : MainKinds()) {
        CheckTraining(c, kind.format);
        c.addend = !c.addend;
        CheckTraining(c, kind.format);
        c.relu = !c.relu;
      }
  }

  TEST_CASE("batch norm: formats of all families, own scales, rounding at random") {
    const Case c = {"17 channels", {5, 4, 4, 17}, 5, true, true};
    for (const Kind& kind : AllKinds())
      if (kind.storage == StorageFor(kind.format)) CheckTraining(c, kind.format);
    OnBoth([&](Lab& lab, Findings& findings) {
      BatchNormSpec spec = MakeSpec(lab, c, kFp16, 4);
      spec.y_style.stochastic = spec.sum_style.stochastic = spec.dx.style.stochastic = true;
      spec.y_style.stream = 1, spec.sum_style.stream = 2, spec.dx.style.stream = 3;
      Train(lab, c, spec, findings);
    });
    for (const NumberFormat& format : {kFp8E4M3, kFp16})
      OnBoth([&](Lab& lab, Findings& findings) {
        BatchNormSpec spec = MakeSpec(lab, c, format, 4);
        GiveScales(lab, spec);
        Train(lab, c, spec, findings);
      });
  }

  TEST_CASE("batch norm: storage that differs between x, out and the gradients") {
    const Case c = Cases()[3];
    for (const NumberFormat& x : {kFp32, kFp16, kBf16})
      for (const NumberFormat& gradients : {kFp16, kBf16, kFp8E5M2})
        OnBoth([&](Lab& lab, Findings& findings) {
          BatchNormSpec spec = MakeSpec(lab, c, x, 4);
          const Values dy = lab.Get(spec.dy.tensor);
          spec.dy = lab.MakeGradient(c.x, gradients, 4, dy);
          spec.dx = lab.MakeGradient(c.x, gradients);
          Train(lab, c, spec, findings);
        });
  }

  TEST_CASE("batch norm: histograms of all its roundings") {
    OnBoth([&](Lab& lab, Findings& findings) {
      BatchNormSpec spec = MakeSpec(lab, Cases()[3], kFp16, 12, 1e-3);
      ExponentBins* const bins[] = {lab.Share<ExponentBins>(), lab.Share<ExponentBins>(),
                                    lab.Share<ExponentBins>()};
      spec.y_style.bins = bins[0], spec.sum_style.bins = bins[1], spec.dx.style.bins = bins[2];
      const auto op = lab->Make(spec);
      Pass pass = PassOf(3);
      pass.bins = true;
      op->Forward(pass);
      op->Backward(pass);
      for (const ExponentBins* of : bins) {
        const ExponentBins seen = lab.Fetched(of);
        findings.Numbers("bins", std::vector<double>(seen.counts.begin(), seen.counts.end()));
        CHECK(seen.numel() == 3 * 5 * 6 * 17);
      }
    });
  }

  TEST_CASE("batch norm: parts hold every pixel once, and are not too many") {
    for (const std::int64_t all : {1, 127, 128, 129, 131072, 131073, 1000003}) {
      const cuda::PixelParts cut(16, all);
      CHECK(cut.Count(all) <= cuda::PixelParts::kMostParts);
      for (const std::int64_t pixels : {all, (all + 1) / 2}) {
        std::int64_t next = 0;
        for (std::int64_t part = 0; part < cut.Count(pixels); ++part) {
          CHECK(cut.Begin(part) == next);
          CHECK(cut.Pixels(part, pixels) > 0);
          next += cut.Pixels(part, pixels);
        }
        CHECK(next == pixels);
      }
    }
  }

  TEST_CASE("batch norm: more than one part, within the error of fp32 sums") {
    for (const Case& c : LargeCases()) {
      CAPTURE(c.name);
      OnBoth([&](Lab& lab, Findings& findings) {
        const BatchNormSpec spec = MakeSpec(lab, c, kFp32, 16);
        const auto op = lab->Make(spec);
        for (const bool accumulate : {false, true}) {
          Pass pass = PassOf(c.rows);
          pass.accumulate = accumulate;
          op->Forward(pass);
          findings.Near("out", lab, spec.out, 1e-6);
          findings.Near("running mean", lab, spec.running_mean, 1e-6);
          findings.Near("running var", lab, spec.running_var, 1e-6);
          op->Backward(pass);
          findings.Add("masked dy", lab, spec.dy.tensor);
          findings.Near("dx", lab, spec.dx.tensor, 1e-6);
          findings.Near("dgamma", lab, spec.dgamma, 1e-5);
          findings.Near("dbeta", lab, spec.dbeta, 1e-5);
        }
        CHECK(lab.Fetched(spec.y_stats).numel == c.rows * c.x.per_image());
      });
    }
  }

  TEST_CASE("batch norm: evaluation uses the running averages and leaves them") {
    for (const Case& c : Cases())
      for (const Kind& kind : MainKinds())
        for (const bool counted : {true, false}) {
          CAPTURE(c.name);
          CAPTURE(kind.name);
          OnBoth([&](Lab& lab, Findings& findings) {
            BatchNormSpec spec = MakeSpec(lab, c, kind.format, 1);
            spec.dy = spec.dx = Gradient{}, spec.dgamma = spec.dbeta = Tensor{};
            if (!counted) spec.y_stats = spec.sum_stats = nullptr;
            Pass pass = PassOf(c.rows);
            pass.training = false;
            lab->Make(spec)->Forward(pass);
            WriteForward(lab, spec, findings);
          });
        }
  }

  TEST_CASE("batch norm: one of two roundings is measured") {
    const Case c = Cases()[3];
    for (const bool first : {true, false})
      for (const bool count : {true, false})
        OnBoth([&](Lab& lab, Findings& findings) {
          BatchNormSpec spec = MakeSpec(lab, c, kFp16, 1);
          (first ? spec.sum_stats : spec.y_stats) = nullptr;
          lab->Make(spec)->Forward(PassOf(c.rows, count));
          WriteForward(lab, spec, findings);
        });
  }

  TEST_CASE("batch norm: a channel that is not finite leaves its running averages alone") {
    const Case c = Cases()[2];
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")})
      OnBoth([&](Lab& lab, Findings& findings) {
        const BatchNormSpec spec = MakeSpec(lab, c, kFp16, 1);
        Values x = lab.Get(spec.x);
        x[5 * 17 + 3] = bad;  // channel 3
        lab.Set(spec.x, x);
        const Values mean = lab.Get(spec.running_mean);
        lab->Make(spec)->Forward(PassOf(c.rows));
        for (std::size_t k = 0; k < 17; ++k)
          CHECK((lab.Get(spec.running_mean)[k] == mean[k]) == (k == 3));
        WriteForward(lab, spec, findings);
      });
  }

  TEST_CASE("batch norm: gradients that underflow, and none for x") {
    const Case c = Cases()[3];
    OnBoth([&](Lab& lab, Findings& findings) {
      BatchNormSpec spec = MakeSpec(lab, c, kFp16, 1e-6f, 1e-6);
      Train(lab, c, spec, findings);
      CHECK(lab.Fetched(spec.dx.stats).underflow > 0);
      spec.dx = Gradient{};
      Train(lab, c, spec, findings);
    });
  }

  TEST_CASE("batch norm: dx where dy lies") {
    const Case c = Cases()[5];
    OnBoth([&](Lab& lab, Findings& findings) {
      BatchNormSpec spec = MakeSpec(lab, c, kFp16, 8);
      spec.dx.tensor.data = spec.dy.tensor.data;
      const auto op = lab->Make(spec);
      op->Forward(PassOf(c.rows));
      op->Backward(PassOf(c.rows));
      WriteBackward(lab, spec, findings);
    });
  }

  TEST_CASE("batch norm: an alpha of its own by every rule, as on the CPU") {
    for (const scaling::LayerMethod method : scaling::kAdaptiveMethods)
      for (const std::size_t k : {1u, 3u, 5u, 6u})
        for (const NumberFormat& format : {kFp16, kFp8E5M2}) {
          CAPTURE(static_cast<int>(method));
          CAPTURE(k);
          OnBoth([&](Lab& lab, Findings& findings) {
            ChooseScales(lab, Cases()[k], method, format, findings);
          });
        }
  }

  TEST_CASE("batch norm: with recomputed it is declined") {
    Lab lab(MakeBackendUnderTest());
    BatchNormSpec spec = MakeSpec(lab, Cases()[2], kFp16, 1);
    spec.recomputed.raw = spec.x, spec.recomputed.z = spec.out;
    CHECK(lab->Make(spec) == nullptr);
  }

  TEST_CASE("batch norm: images that are cut into parts, by the definition") {
    for (const Shape& shape : {Shape{3, 40, 40, 24}, Shape{2, 30, 7, 2300}, Shape{5, 33, 37, 15}}) {
      CAPTURE(ToString(shape));
      const Case c = {"large", shape, static_cast<int>(shape.n)};
      Lab lab(MakeBackendUnderTest());
      const BatchNormSpec spec = MakeSpec(lab, c, kFp32, 2);
      const auto op = lab->Make(spec);
      op->Forward(PassOf(c.rows));
      op->Backward(PassOf(c.rows));
      const Values x = lab.Get(spec.x), out = lab.Get(spec.out), dy = lab.Get(spec.dy.tensor);
      const Values gamma = lab.Get(spec.gamma), beta = lab.Get(spec.beta);
      const Values dbeta = lab.Get(spec.dbeta), dgamma = lab.Get(spec.dgamma);
      const Values dx = lab.Get(spec.dx.tensor);
      const auto channels = static_cast<std::size_t>(shape.c);
      const double count = static_cast<double>(x.size() / channels);
      const auto wide = [](float v) { return static_cast<double>(v); };
      double worst = 0;
      for (std::size_t k = 0; k < channels; ++k) {
        double mean = 0, var = 0, sum = 0, product = 0;
        for (std::size_t i = k; i < x.size(); i += channels) mean += wide(x[i]) / count;
        for (std::size_t i = k; i < x.size(); i += channels)
          var += (wide(x[i]) - mean) * (wide(x[i]) - mean) / count;
        const double inverse = 1 / std::sqrt(var + wide(spec.eps));
        for (std::size_t i = k; i < x.size(); i += channels)
          sum += wide(dy[i]), product += wide(dy[i]) * (wide(x[i]) - mean) * inverse;
        const auto note = [&](float got, double want, double size) {
          worst = std::max(worst, std::fabs(wide(got) - want) / size);
        };
        for (std::size_t i = k; i < x.size(); i += channels) {
          const double xhat = (wide(x[i]) - mean) * inverse;
          note(out[i], xhat * wide(gamma[k]) + wide(beta[k]), 4 * (1 + std::fabs(mean)));
          note(dx[i],
               (wide(dy[i]) - sum / count - xhat * product / count) * inverse * wide(gamma[k]),
               4 * (1 + std::fabs(inverse)));
        }
        note(dbeta[k], sum / 2, count), note(dgamma[k], product / 2, count);
      }
      CHECK(worst < 1e-5);
    }
  }

  TEST_CASE("batch norm: a large mean costs no accuracy") {
    const Case c = {"offset", {8, 4, 4, 16}, 8};
    OnBoth([&](Lab& lab, Findings& findings) {
      const BatchNormSpec spec = MakeSpec(lab, c, kFp32, 1);
      Values x = Normal(Size(c.x), 1, 1);
      for (float& v : x) v += 1000;
      lab.Set(spec.x, x);
      Train(lab, c, spec, findings);
    });
  }
}

}  // namespace ada::backend::test
