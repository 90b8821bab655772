// The weight gradient by kernels of our own against sums in double: every way in which shapes do
// not fit tiles, storages and parts, several calls, values that are not finite. Products are exact,
// so that the error is that of fp32 sums alone (op_bench.h: 2^-22 of the sum of magnitudes).
#include <doctest/doctest.h>

#include "backend/cpu/matmul/plan/partial_gradients.h"
#include "backend/cpu/matmul/plan/winograd.h"
#include "backend/matmul_cases.h"
#include "backend/reductions.h"
#include "skip.h"

namespace ada::backend::test {
namespace {

#define ADA_NEEDS_TILES()                 \
  if (cpu::SelectMatmulKernels().empty()) \
  ADA_SKIP("this processor has no fused multiply-adds, or ADA_ISA asks for less")

// Makes those of the kernels that this processor would use.
std::unique_ptr<cpu::PartialGradients> MakeGradients(const MatmulCase& c, int x_parts,
                                                     int dy_parts) {
  static const std::vector<cpu::MatmulKernels> tables = cpu::SelectMatmulKernels();
  for (const cpu::MatmulKernels& kernels : tables) {
    if (kernels.on_bf16_split())
      return std::make_unique<cpu::AmxWeightGradient>(kernels, GeometryOf(c), x_parts, dy_parts);
    if (kernels.on_fp32() && kernels.winograd != nullptr && MayUseWinograd(c) &&
        cpu::TakesWinogradGradient(GeometryOf(c)))
      return std::make_unique<cpu::WinogradGradient>(*kernels.winograd, GeometryOf(c));
    if (kernels.on_fp32() || (x_parts == 1 && dy_parts == 1))
      return std::make_unique<cpu::DirectWeightGradient>(kernels, GeometryOf(c), BlockImages(c.y()),
                                                         static_cast<int>(c.x.n));
  }
  return nullptr;
}

// Memory that begins at a whole line and holds nothing but NaNs.
class Lines {
 public:
  explicit Lines(std::size_t bytes) : bytes_(bytes + 64, std::byte{0xff}) {}
  std::byte* data() {
    return bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64;
  }
  float* floats() { return reinterpret_cast<float*>(data()); }

 private:
  std::vector<std::byte> bytes_;
};

// How an operand is kept: values of `format` in `storage`, as `parts` bf16 values each.
struct Operand {
  NumberFormat format;
  Storage storage;
  int parts;
};
const Operand kHalf{kFp16, Storage::kF16, 2}, kBrain{kBf16, Storage::kBF16, 1},
    kSmall{kFp8E5M2, Storage::kF16, 1}, kWide{kFp16, Storage::kF32, 2},
    kWideBrain{kBf16, Storage::kF32, 1}, kCerebras{kCb16, Storage::kF32, 2};

Values ValuesOf(const Operand& operand, std::int64_t n, std::uint64_t seed) {
  Values values = Normal(static_cast<std::size_t>(n), 1, seed);
  for (float& v : values) v = RoundTo(operand.format, v);
  return values;
}

struct Problem {
  Problem(const MatmulCase& c, const Operand& x_kind, const Operand& dy_kind)
      : product(c),
        x_values(ValuesOf(x_kind, c.x.numel(), 1)),
        dy_values(ValuesOf(dy_kind, c.y().numel(), 2)),
        x_storage(x_kind.storage),
        dy_storage(dy_kind.storage),
        gradients(MakeGradients(c, x_kind.parts, dy_kind.parts)),
        tiles(*gradients) {}

  // Calls of `most` images, each to the same partial gradient.
  Lines Partial(std::int64_t most) {
    Memory x(x_storage, x_values), dy(dy_storage, dy_values);
    Lines partial(static_cast<std::size_t>(tiles.partial_values()) * 4);
    Lines scratch(tiles.scratch_bytes(static_cast<int>(most)));
    const auto at = [](const cpu::TensorSpan& p, std::int64_t value) {
      return cpu::TensorSpan{
          static_cast<std::byte*>(p.data) + static_cast<std::size_t>(value) * BytesOf(p.storage),
          p.storage};
    };
    for (std::int64_t n = 0; n < product.x.n; n += most)
      tiles.Run(at(x.piece(), n * product.x.per_image()),
                at(dy.piece(), n * product.y().per_image()),
                static_cast<int>(std::min(most, product.x.n - n)), n == 0, partial.floats(),
                scratch.data());
    return partial;
  }
  // dw, then db.
  Values Run(std::int64_t most) { return Plain(Partial(most).floats()); }
  Values Plain(const float* partial) const {
    const auto weights = static_cast<std::size_t>(product.w().numel());
    Values plain(weights + (product.bias ? static_cast<std::size_t>(product.out) : 0));
    for (const auto& group : tiles.groups()) tiles.ToPlain(group, partial, plain.data());
    if (product.bias) tiles.BiasToPlain(partial, plain.data() + weights);
    return plain;
  }
  Sums Reference() const {
    Sums sums(static_cast<std::size_t>(product.w().numel()));
    ForProducts(product, product.x.n, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
      sums[static_cast<std::size_t>(wi)].Add(
          static_cast<double>(x_values[static_cast<std::size_t>(xi)]) *
          static_cast<double>(dy_values[static_cast<std::size_t>(yi)]));
    });
    if (!product.bias) return sums;
    const std::size_t weights = sums.size(), out = static_cast<std::size_t>(product.out);
    sums.resize(weights + out);
    for (std::size_t i = 0; i < dy_values.size(); ++i)
      sums[weights + i % out].Add(static_cast<double>(dy_values[i]));
    return sums;
  }

  MatmulCase product;
  Values x_values, dy_values;
  Storage x_storage, dy_storage;
  std::unique_ptr<cpu::PartialGradients> gradients;
  cpu::PartialGradients& tiles;
};

void CheckSums(const Values& got, const Sums& want) {
  REQUIRE(got.size() == want.size());
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = got.size(); i-- > 0;)
    if (!Rounded(kFp32, want[i]).Holds(got[i])) ++wrong, first = i;
  CHECK_MESSAGE(wrong == 0, wrong << " of " << got.size() << " wrong, first [" << first
                                  << "] = " << got[first] << ", wanted " << want[first].value);
}
// In all ways in which the layer may be computed.
void CheckProblem(const MatmulCase& c, const Operand& x, const Operand& dy,
                  std::int64_t images_of_call = 0) {
  CAPTURE(c.name);
  const auto check = [&] {
    Problem problem(c, x, dy);
    CheckSums(problem.Run(images_of_call > 0 ? images_of_call : c.x.n),
              ShareMagnitudes(c, problem.Reference()));
  };
  check();
  if (!MayUseWinograd(c)) return;
  const DirectMatmuls direct;
  check();
}

MatmulCase Convolution(Shape x, std::int64_t out, int kernel, int stride, int padding, int dilation,
                       bool bias) {
  MatmulCase c;
  c.name = ToString(x) + " x " + std::to_string(x.n) + " to " + std::to_string(out) + ", " +
           std::to_string(kernel) + "x" + std::to_string(kernel) + " stride " +
           std::to_string(stride) + " padding " + std::to_string(padding) + " dilation " +
           std::to_string(dilation);
  c.x = x, c.out = out, c.kernel = {kernel, kernel}, c.stride = {stride, stride};
  c.padding = {padding, padding}, c.dilation = {dilation, dilation}, c.bias = bias;
  return c;
}

std::vector<Operand> AllOperands() { return {kHalf, kBrain, kSmall, kWide, kWideBrain, kCerebras}; }

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("tile weight gradient: products of every kind, in every storage and number of parts") {
    ADA_NEEDS_TILES();
    std::size_t next = 0;
    const std::vector<Operand> operands = AllOperands();
    for (const MatmulCase& c : SmallMatmuls()) {
      if (c.groups != 1) continue;
      CheckProblem(c, kHalf, kHalf);
      CheckProblem(c, operands[next % 6], operands[next / 6 % 6]);
      next += 7;
    }
  }

  TEST_CASE("tile weight gradient: all pairs of storages and parts") {
    ADA_NEEDS_TILES();
    for (const Operand& x : AllOperands())
      for (const Operand& dy : AllOperands()) {
        CheckProblem(Convolution({3, 5, 9, 17}, 33, 3, 1, 1, 1, true), x, dy);
        CheckProblem(Convolution({3, 6, 7, 3}, 16, 3, 1, 1, 1, true), x, dy);
      }
  }

  TEST_CASE("tile weight gradient: kernels, strides, paddings and dilations") {
    ADA_NEEDS_TILES();
    for (const int kernel : {1, 3, 5})
      for (const int stride : {1, 2, 3})
        for (const int padding : {0, 1, 2})
          for (const int dilation : {1, 2})
            for (const std::int64_t channels : {3, 16, 20})
              CheckProblem(Convolution({3, 9, 11, channels}, 18, kernel, stride, padding, dilation,
                                       kernel == 3),
                           kHalf, kHalf);
  }

  TEST_CASE("tile weight gradient: all widths and numbers of images") {
    ADA_NEEDS_TILES();
    for (int width = 1; width <= 35; ++width)
      for (const std::int64_t images : {1, 2, 5, 9})
        CheckProblem(Convolution({images, 3, width, 5}, 7, 3, 1, 1, 1, false), kHalf, kHalf);
    for (const int width : {1, 2, 3, 4, 8})
      for (const std::int64_t images : {16, 31, 32, 33, 70})
        CheckProblem(Convolution({images, width, width, 16}, 16, 3, 1, 1, 1, true), kHalf, kHalf);
  }

  TEST_CASE("tile weight gradient: all numbers of channels") {
    ADA_NEEDS_TILES();
    for (const std::int64_t in : {1, 3, 10, 16, 17, 33, 64, 80})
      for (const std::int64_t out : {1, 3, 10, 16, 17, 33, 64, 80})
        CheckProblem(Convolution({3, 4, 4, in}, out, 3, 1, 1, 1, true), kHalf, kHalf);
    for (const std::int64_t in : {1, 16, 30, 64, 90, 784})
      CheckProblem(LinearCase("linear", {37, 1, 1, in}, 40, true), kHalf, kHalf);
  }

  TEST_CASE("tile weight gradient: several calls add up, in strips of few and many rows") {
    ADA_NEEDS_TILES();
    for (const std::int64_t most : {1, 2, 3, 4, 9}) {
      for (const MatmulCase& c : {Convolution({9, 33, 6, 16}, 16, 3, 1, 1, 1, true),
                                  Convolution({9, 40, 4, 3}, 16, 5, 2, 2, 1, false)}) {
        CAPTURE(most);
        CheckProblem(c, kHalf, kHalf, most);
      }
    }
  }

  TEST_CASE("tile weight gradient: the same call gives the same bits") {
    ADA_NEEDS_TILES();
    const MatmulCase c = Convolution({9, 7, 7, 17}, 40, 3, 1, 1, 1, true);
    Problem problem(c, kHalf, kHalf);
    CHECK(FirstDifference(problem.Run(4), problem.Run(4)) == -1);
    const DirectMatmuls setting;
    Problem direct(c, kHalf, kHalf);
    CHECK(FirstDifference(direct.Run(4), direct.Run(4)) == -1);
  }

  TEST_CASE("tile weight gradient: plain values go into a partial gradient and come back") {
    ADA_NEEDS_TILES();
    for (const MatmulCase& c : SmallMatmuls()) {
      if (c.groups != 1) continue;
      CAPTURE(c.name);
      const Problem problem(c, kHalf, kHalf);
      const auto weights = static_cast<std::size_t>(c.w().numel());
      Values values = Normal(weights + (c.bias ? static_cast<std::size_t>(c.out) : 0), 1, 5);
      const float* db = c.bias ? values.data() + weights : nullptr;
      Lines partial(static_cast<std::size_t>(problem.tiles.partial_values()) * 4);
      problem.tiles.AddPlain(values.data(), db, true, partial.floats());
      CHECK(FirstDifference(problem.Plain(partial.floats()), values) == -1);
      problem.tiles.AddPlain(values.data(), db, false, partial.floats());
      for (float& v : values) v *= 2;
      CHECK(FirstDifference(problem.Plain(partial.floats()), values) == -1);
    }
  }

  // A layer's sum is computed anew by other kernels where anything in a partial gradient is not
  // finite: what memory held before must not decide.
  TEST_CASE("tile weight gradient: every value of a partial gradient is written") {
    ADA_NEEDS_TILES();
    for (const MatmulCase& c : SmallMatmuls()) {
      if (c.groups != 1) continue;
      CAPTURE(c.name);
      Problem problem(c, kHalf, kHalf);
      Lines partial = problem.Partial(2);
      const float* values = partial.floats();
      CHECK(std::all_of(values, values + problem.tiles.partial_values(),
                        [](float v) { return std::isfinite(v); }));
    }
  }

  TEST_CASE("tile weight gradient: what is not finite makes all that it takes part in not finite") {
    ADA_NEEDS_TILES();
    const float inf = std::numeric_limits<float>::infinity(),
                nan = std::numeric_limits<float>::quiet_NaN();
    for (const Operand& kind : {kHalf, kBrain, kWide})
      for (const float bad : {inf, -inf, nan})
        for (const bool in_x : {true, false})
          for (const MatmulCase& c : {Convolution({3, 5, 5, 17}, 18, 3, 1, 1, 1, false),
                                      Convolution({3, 6, 6, 3}, 18, 3, 2, 1, 1, false)}) {
            Problem problem(c, kind, kind);
            Values& values = in_x ? problem.x_values : problem.dy_values;
            values[values.size() / 3] = bad, values.back() = bad;
            const Sums truth = problem.Reference();
            const Values got = problem.Run(3);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < got.size(); ++i)
              wrong += !std::isfinite(truth[i].value) && std::isfinite(got[i]) ? 1 : 0;
            CHECK(wrong == 0);
          }
  }
}

}  // namespace ada::backend::test
