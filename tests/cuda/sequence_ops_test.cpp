// Layers of sequences but attention against the CPU's, bit for bit: their sums have one order on
// every backend.
#include <doctest/doctest.h>

#include <bit>

#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

const Shape kSequence = {5, 37, 1, 24};

const std::vector<NumberFormat>& Formats() {
  static const std::vector<NumberFormat> formats = {kFp32, kFp16, kBf16, kFp8E4M3, kFp8E5M2};
  return formats;
}
Values RandomOf(const Shape& shape, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), 1, seed);
}
// Whole, in part and as a later micro-batch; counted and not.
template <class Then>
void Steps(Op& op, Then&& then, bool part = false) {
  for (int step = 0; step < 4; ++step) {
    Pass pass;
    pass.rows = step % 2 == 0 ? 5 : 3, pass.loss_terms = 5, pass.count = step != 1;
    pass.accumulate = step == 2, pass.part = part;
    pass.seed = 0xfedcba9876543210ull, pass.draw = static_cast<std::uint64_t>(step);
    op.RefreshWeights(pass);
    op.Forward(pass);
    op.Backward(pass);
    if (part) op.FinishGradients(pass);
    then();
  }
}
// prepare(lab, spec) fills in what is of the kind, and returns gradients of parameters that are
// written. x holds values that are not finite as well.
template <class Spec, class Prepare>
void Check(const Shape& x, const Shape& y, Prepare&& prepare, bool exact_dx = false) {
  CAPTURE(Spec::kKind);
  for (const NumberFormat& format : Formats())
    for (const bool has_dx : {true, false})
      for (const auto& [stochastic, wild] :
           {std::pair{false, false}, {true, false}, {false, true}}) {
        CAPTURE(FormatName(format));
        CAPTURE(wild);
        OnBoth([&, random = stochastic, any = wild](Lab& lab, Findings& findings) {
          Spec spec;
          const auto count = static_cast<std::size_t>(x.numel());
          spec.x = lab.Make(x, format, any ? RandomBits(count, 1) : RandomOf(x, 1));
          spec.y = lab.Make(y, format);
          spec.dy = lab.MakeGradient(y, format, 32, RandomOf(y, 2));
          if (has_dx) spec.dx = lab.MakeGradient(x, format);
          if (exact_dx) spec.dx.stats = nullptr;
          spec.dx.style.stochastic = random && !exact_dx, spec.dx.style.stream = 5;
          if constexpr (requires { spec.y_stats; }) {
            spec.y_stats = lab.Share<TensorStats>();
            spec.y_style.stochastic = random, spec.y_style.stream = 4;
          }
          const std::vector<Tensor> gradients = prepare(lab, spec);
          const auto op = lab->Make(spec);
          Steps(*op, [&] {
            findings.Add("y", lab, spec.y);
            if (spec.dx) findings.Add("dx", lab, spec.dx);
            for (const Tensor& gradient : gradients) findings.Add("gradient", lab, gradient);
            if constexpr (requires { spec.y_stats; })
              findings.Add("stats", lab.Fetched(spec.y_stats));
          });
        });
      }
}

Values TokensOf(const Shape& shape, int vocabulary, std::uint64_t seed) {
  RandomStream random(seed, StreamId("tokens"));
  Values values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    // Every other place has one of a few tokens.
    const auto token =
        random.NextU32() % static_cast<unsigned>(i % 2 == 0 ? vocabulary : std::min(vocabulary, 3));
    values.push_back(std::bit_cast<float>(token));
  }
  return values;
}

struct EmbeddingCase {
  int vocabulary, channels;
  Shape tokens;
  NumberFormat format, dw_format = kFp32;
  bool adds_dw = false, part = false;
};
void CheckEmbedding(const EmbeddingCase& c) {
  CAPTURE(c.vocabulary);
  CAPTURE(FormatName(c.format));
  OnBoth([&](Lab& lab, Findings& findings) {
    EmbeddingSpec spec;
    const Shape w{c.vocabulary, 1, 1, c.channels}, y{c.tokens.n, c.tokens.h, 1, c.channels};
    spec.x = lab.Make(c.tokens, kFp32, TokensOf(c.tokens, c.vocabulary, 1));
    spec.y = lab.Make(y, c.format), spec.y_stats = lab.Share<TensorStats>();
    spec.w = lab.Make(w, kFp32, RandomOf(w, 2));
    spec.dw = lab.Make(w, kFp32, RandomOf(w, 3)), spec.adds_dw = c.adds_dw;
    spec.dw_format = c.dw_format, spec.dw_stats = lab.Share<TensorStats>();
    spec.dy = lab.MakeGradient(y, c.format, 32, RandomOf(y, 4));
    const auto op = lab->Make(spec);
    Steps(
        *op,
        [&] {
          findings.Add("y", lab, spec.y);
          findings.Add("dw", lab, spec.dw);
          findings.Add("y stats", lab.Fetched(spec.y_stats));
          findings.Add("dw stats", lab.Fetched(spec.dw_stats));
        },
        c.part);
  });
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("sequences: embedding, its places sorted by token and added in their order") {
    const Shape tokens{5, 61, 1, 1};
    for (const NumberFormat& format : Formats())
      for (const NumberFormat& dw : {kFp32, kBf16})
        for (const bool adds : {false, true}) CheckEmbedding({50, 24, tokens, format, dw, adds});
    CheckEmbedding({50, 7, tokens, kFp16, kFp16, true, /*part=*/true});
    CheckEmbedding({1, 8, tokens, kFp32});
    CheckEmbedding({256, 3, tokens, kFp32});
    CheckEmbedding({257, 4, {5, 300, 1, 1}, kFp16});  // keys of two bytes, more than one block
    CheckEmbedding({70000, 2, {5, 250, 1, 1}, kFp32});
  }

  TEST_CASE("sequences: position embedding, class token") {
    const Shape longer{5, 38, 1, 24}, context{41, 1, 1, 24}, odd{5, 9, 1, 7};
    const auto table = [](Lab& lab, auto& spec, const Shape& shape) {
      spec.w = lab.Make(shape, kFp32, RandomOf(shape, 3));
      spec.dw = lab.Make(shape, kFp32, RandomOf(shape, 4));
      return std::vector<Tensor>{spec.dw};
    };
    Check<PositionEmbeddingSpec>(
        kSequence, kSequence,
        [&](Lab& lab, PositionEmbeddingSpec& spec) { return table(lab, spec, context); }, true);
    Check<PositionEmbeddingSpec>(
        odd, odd,
        [&](Lab& lab, PositionEmbeddingSpec& spec) {
          return table(lab, spec, {9, 1, 1, 7});
        },
        true);
    // dx where dy lies.
    for (const bool asks : {false, true})
      Check<PositionEmbeddingSpec>(
          kSequence, kSequence,
          [&](Lab& lab, PositionEmbeddingSpec& spec) {
            if (spec.dx) spec.dx.tensor = spec.dy.tensor;
            if (!asks) spec.dx.moments = nullptr;
            return table(lab, spec, context);
          },
          true);
    Check<ClassTokenSpec>(
        kSequence, longer,
        [&](Lab& lab, ClassTokenSpec& spec) {
          return table(lab, spec, {1, 1, 1, 24});
        },
        true);
    Check<ClassTokenSpec>(
        {5, 4, 5, 24}, {5, 21, 1, 24},
        [&](Lab& lab, ClassTokenSpec& spec) {
          return table(lab, spec, {1, 1, 1, 24});
        },
        true);
  }

  TEST_CASE("sequences: rope, softmax, select, RMS norm, L2 norm") {
    for (const bool interleaved : {false, true})
      for (const int rotary : {8, 4, 2})
        Check<RopeSpec>(kSequence, kSequence, [&](Lab&, RopeSpec& spec) {
          spec.heads = 3, spec.rotary = rotary, spec.base = 100, spec.interleaved = interleaved;
          return std::vector<Tensor>{};
        });
    for (const Shape& shape : {kSequence, Shape{5, 4, 3, 7}, Shape{5, 1, 1, 100}})
      Check<SoftmaxSpec>(shape, shape, [](Lab&, SoftmaxSpec&) { return std::vector<Tensor>{}; });
    for (const int position : {0, 36})
      Check<SelectSpec>(
          kSequence, {5, 1, 1, 24},
          [&](Lab&, SelectSpec& spec) {
            spec.position = position;
            return std::vector<Tensor>{};
          },
          true);
    const auto norm = [](Lab& lab, auto& spec) {
      const auto c = static_cast<std::size_t>(spec.x.shape.c);
      spec.gamma = lab.Vector(Normal(c, 1, 3)), spec.dgamma = lab.Vector(Values(c));
      return std::vector<Tensor>{spec.dgamma};
    };
    for (const Shape& shape : {kSequence, Shape{5, 3, 2, 7}, Shape{5, 1, 1, 100}}) {
      Check<RmsNormSpec>(shape, shape, norm);
      Check<LayerNormSpec>(shape, shape, norm);
      Check<L2NormalizeSpec>(shape, shape, norm);
    }
  }
}

}  // namespace ada::backend::test
