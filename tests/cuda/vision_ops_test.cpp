// What detection and segmentation need, against the CPU's: unpooling, local response normalization,
// L2 normalization, joined boxes bit for bit, the losses of pixels and of default boxes but for the
// order of sums in double.
#include <doctest/doctest.h>

#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

Values NormalOf(const Shape& shape, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), 1, seed);
}
// Whole and in part, counted and not, as a later micro-batch.
template <class Then>
void FourSteps(Op& op, int rows, const std::function<void(int)>& before, Then&& then) {
  for (int step = 0; step < 4; ++step) {
    Pass pass;
    pass.rows = step % 2 == 0 ? rows : rows - 1, pass.count = step != 1;
    pass.loss_terms = 10 + 5 * step, pass.loss_scale = static_cast<float>(64 << step);
    pass.accumulate = step == 2;
    before(pass.rows);
    op.Forward(pass);
    op.Backward(pass);
    then();
  }
}
void Nothing(int) {}

template <class Spec>
void CheckLayer(Spec prepared, const Shape& x, const Shape& y, bool exact,
                const std::function<void(Lab&, Spec&)>& prepare) {
  CAPTURE(Spec::kKind);
  for (const Kind& kind : MainKinds())
    OnBoth([&](Lab& lab, Findings& findings) {
      Spec spec = prepared;
      spec.x = lab.Make(x, kind.format, NormalOf(x, 1)), spec.y = lab.Make(y, kind.format);
      spec.dy = lab.MakeGradient(y, kind.format, 32, NormalOf(y, 2));
      spec.dx = lab.MakeGradient(x, kind.format);
      if (exact) spec.dx.stats = nullptr;
      if constexpr (requires { spec.y_stats; }) spec.y_stats = lab.Share<TensorStats>();
      prepare(lab, spec);
      const auto op = lab->Make(spec);
      FourSteps(*op, static_cast<int>(x.n), Nothing, [&] {
        findings.Add("y", lab, spec.y);
        findings.Add("dx", lab, spec.dx);
        if constexpr (requires { spec.y_stats; }) findings.Add("stats", lab.Fetched(spec.y_stats));
        if constexpr (requires { spec.dgamma; }) findings.Add("dgamma", lab, spec.dgamma);
      });
    });
}

template <class T>
T* Uploaded(Lab& lab, const std::vector<T>& values) {
  std::byte* memory = lab->Allocate(values.size() * sizeof(T));
  lab->Upload(memory, values.data(), values.size() * sizeof(T));
  return reinterpret_cast<T*>(memory);
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("max_unpool: exact, whole, cut and smaller") {
    struct Sizes {
      Shape x, pooled, y;
      std::array<int, 2> kernel, stride, padding;
    };
    for (const Sizes& s :
         {Sizes{{3, 5, 4, 19}, {3, 5, 4, 19}, {3, 9, 7, 19}, {2, 2}, {2, 2}, {0, 0}},
          Sizes{{3, 6, 4, 19}, {3, 5, 4, 19}, {3, 10, 8, 19}, {2, 2}, {2, 2}, {0, 0}},
          Sizes{{3, 4, 4, 19}, {3, 5, 7, 19}, {3, 8, 8, 19}, {2, 2}, {2, 2}, {0, 0}},
          Sizes{{3, 4, 4, 7}, {3, 4, 4, 7}, {3, 10, 11, 7}, {2, 3}, {3, 3}, {1, 0}}})
      CheckLayer<MaxUnpoolSpec>({}, s.x, s.y, true, [&](Lab& lab, MaxUnpoolSpec& spec) {
        spec.kernel = s.kernel, spec.stride = s.stride, spec.padding = s.padding;
        spec.pooled = s.pooled;
        const int all = s.kernel[0] * s.kernel[1];
        std::vector<std::uint16_t> positions;
        for (std::int64_t i = 0; i < s.pooled.numel(); ++i) {
          // Inside the image: not in the padded first row, nor where the last window is cut.
          const std::int64_t row = i / s.pooled.c / s.pooled.w % s.pooled.h;
          const int first = row == 0 && s.padding[0] > 0 ? s.kernel[1] : 0;
          positions.push_back(static_cast<std::uint16_t>(
              std::max<int>(first, row + 1 == s.pooled.h ? 0 : static_cast<int>(i * 7 % all))));
        }
        spec.positions = Uploaded(lab, positions);
      });
  }

  TEST_CASE("max_pool gives its positions, in evaluation too") {
    for (const bool training : {true, false})
      OnBoth([&](Lab& lab, Findings& findings) {
        MaxPoolSpec spec;
        const Shape x{3, 9, 7, 20}, y{3, 5, 4, 20};
        spec.kernel = spec.stride = {2, 2};
        spec.x = lab.Make(x, kFp16, NormalOf(x, 1)), spec.y = lab.Make(y, kFp16);
        if (training) {
          spec.dy = lab.MakeGradient(y, kFp16, 8, NormalOf(y, 2));
          spec.dx = lab.MakeGradient(x, kFp16), spec.dx.stats = nullptr;
        }
        std::vector<std::uint16_t> positions(static_cast<std::size_t>(y.numel()), 77);
        spec.positions = Uploaded(lab, positions);
        const auto op = lab->Make(spec);
        Pass pass;
        pass.rows = 2;
        op->Forward(pass);
        if (training) op->Backward(pass);
        lab->Synchronize();
        lab->Download(positions.data(), reinterpret_cast<std::byte*>(spec.positions),
                      2 * positions.size());
        lab->Synchronize();
        findings.Numbers("positions", std::vector<double>(positions.begin(), positions.end()));
        if (training) findings.Add("dx", lab, spec.dx);
      });
  }

  TEST_CASE("lrn and l2_normalize") {
    for (const Shape& shape : {Shape{3, 5, 7, 3}, Shape{3, 4, 6, 40}, Shape{3, 1, 1, 1}}) {
      for (const int size : {5, 4}) {
        LrnSpec lrn;
        lrn.size = size, lrn.alpha = 0.3;
        CheckLayer<LrnSpec>(lrn, shape, shape, false, [](Lab&, LrnSpec&) {});
      }
      CheckLayer<L2NormalizeSpec>({}, shape, shape, false, [&](Lab& lab, L2NormalizeSpec& spec) {
        const auto c = static_cast<std::size_t>(shape.c);
        spec.gamma = lab.Vector(Normal(c, 1, 3)), spec.dgamma = lab.Vector(Values(c));
      });
    }
  }

  TEST_CASE("concat_boxes") {
    const Shape first{3, 5, 6, 8}, second{3, 3, 3, 24}, both{3, 1, 114, 4};
    for (const NumberFormat& format : {kFp32, kFp16})
      OnBoth([&](Lab& lab, Findings& findings) {
        ConcatBoxesSpec spec;
        spec.x = {lab.Make(first, kFp32, NormalOf(first, 1)),
                  lab.Make(second, kFp16, NormalOf(second, 2))};
        spec.y = lab.Make(both, format), spec.y_stats = lab.Share<TensorStats>();
        spec.dy = lab.MakeGradient(both, kFp16, 32, NormalOf(both, 3));
        spec.dx = {lab.MakeGradient(first, kFp16), lab.MakeGradient(second, kFp16)};
        for (Gradient& dx : spec.dx) dx.stats = nullptr;
        const auto op = lab->Make(spec);
        FourSteps(*op, 3, Nothing, [&] {
          findings.Add("y", lab, spec.y);
          findings.Add("stats", lab.Fetched(spec.y_stats));
          for (const Gradient& dx : spec.dx) findings.Add("dx", lab, dx);
        });
      });
  }

  TEST_CASE("the loss of pixels") {
    for (const Kind& kind : MainKinds())
      for (const std::int64_t classes : {2, 11, 70})
        for (const bool reference : {false, true})
          OnBoth([&](Lab& lab, Findings& findings) {
            const Shape shape{3, 17, 31, classes};
            PixelLossSpec spec;
            spec.logits = lab.Make(shape, kind.format, NormalOf(shape, 1));
            for (std::int64_t k = 0; k < classes; ++k)
              spec.class_weights.push_back(0.25f * static_cast<float>(k % 5));
            spec.dlogits = lab.MakeGradient(shape, kind.format), spec.reference = reference;
            const auto op = lab->MakeLoss(spec);
            std::vector<std::int32_t> labels;
            for (std::int64_t i = 0; i < 3 * 17 * 31; ++i)
              labels.push_back(static_cast<std::int32_t>(i * 13 % (classes + 1)) - 1);
            FourSteps(
                *op, 3, [&](int rows) { op->SetTargets({labels.data()}, rows); },
                [&] {
                  findings.Add("dx", lab, spec.dlogits);
                  const LossResult result = op->Result();
                  findings.Numbers("loss", {result.loss_sum}, 1e-12);
                  findings.Numbers(
                      "hits", {static_cast<double>(result.top1), static_cast<double>(result.top5)});
                });
          });
  }

  TEST_CASE("the loss of default boxes: no, some and too few negatives; ties") {
    for (const Kind& kind : MainKinds())
      for (const std::int64_t boxes : {3, 300, 1111})
        for (const double negatives : {0.0, 2.5, 50.0})
          OnBoth([&](Lab& lab, Findings& findings) {
            const Shape four{3, 1, boxes, 4}, scores{3, 1, boxes, 6};
            MultiboxLossSpec spec;
            Values of_scores = NormalOf(scores, 1);
            for (float& z : of_scores) z = std::round(z * 2) / 2;  // many equal losses
            spec.locations = lab.Make(four, kind.format, NormalOf(four, 2));
            spec.scores = lab.Make(scores, kind.format, of_scores);
            spec.dlocations = lab.MakeGradient(four, kind.format);
            spec.dscores = lab.MakeGradient(scores, kind.format);
            spec.negatives = negatives;
            const auto op = lab->MakeLoss(spec);
            std::vector<std::int32_t> labels;
            for (std::int64_t i = 0; i < 3 * boxes; ++i)  // the third image has no positive box
              labels.push_back(i % 13 == 5                   ? -1
                               : i % 9 == 1 && i < 2 * boxes ? static_cast<std::int32_t>(1 + i % 5)
                                                             : 0);
            const Values targets = NormalOf(four, 3);
            FourSteps(
                *op, 3,
                [&](int rows) {
                  Targets all{labels.data()};
                  all.locations = targets.data();
                  op->SetTargets(all, rows);
                },
                [&] {
                  findings.Add("dx", lab, spec.dlocations);
                  findings.Add("dx2", lab, spec.dscores);
                  const LossResult result = op->Result();
                  findings.Numbers("loss", {result.loss_sum, result.location_sum}, 1e-12);
                  findings.Numbers(
                      "hits", {static_cast<double>(result.top1), static_cast<double>(result.top5)});
                });
          });
  }
}

}  // namespace ada::backend::test
