// Largest magnitudes that are left to a batch norm: of its x and of its dy, as they are stored.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  Shape shape;
  int rows;
  NumberFormat x, dy;
  bool relu = false, in_place = false;
  float bad = 0;  // among x and dy
};

BatchNormSpec MakeSpec(Lab& lab, const Case& c) {
  const auto k = static_cast<std::size_t>(c.shape.c);
  BatchNormSpec spec;
  spec.x = lab.Make(c.shape, c.x);
  spec.gamma = lab.Vector(Normal(k, 1, 2)), spec.beta = lab.Vector(Normal(k, 1, 3));
  spec.running_mean = lab.Vector(Values(k)), spec.running_var = lab.Vector(Values(k, 1));
  spec.relu = c.relu, spec.out = lab.Make(c.shape, c.x), spec.y_format = c.x;
  spec.y_stats = lab.Share<TensorStats>();
  spec.x_stats = lab.Share<TensorStats>();
  spec.dy = lab.MakeGradient(c.shape, c.dy, 4);
  spec.dy.moments = nullptr, spec.dy.amax_deferred = true;
  spec.dx = lab.MakeGradient(c.shape, c.dy);
  if (c.in_place) spec.dx.tensor.data = spec.dy.tensor.data;
  spec.dgamma = lab.Vector(Values(k)), spec.dbeta = lab.Vector(Values(k));
  return spec;
}

// NaN where there is one.
float LargestOf(const Lab& lab, const Tensor& tensor, int rows) {
  float largest = 0;
  Values values = lab.Get(tensor);
  values.resize(static_cast<std::size_t>(rows * tensor.shape.per_image()));
  for (const float v : values)
    largest = std::isnan(v) || std::isnan(largest) ? NAN : std::max(largest, std::fabs(v));
  return largest;
}

void CheckNote(const TensorStats& note, float largest, std::int64_t values) {
  CHECK(ada::test::Same(note.max_abs, largest));
  CHECK(note.numel == values);
  CHECK_FALSE(note.full);
}

// Passes over values that grow and shrink; the last but one counts, and leaves the notes alone.
void CheckNotes(Lab& lab, const Case& c) {
  CAPTURE(ToString(c.shape));
  CAPTURE(c.relu);
  CAPTURE(c.in_place);
  CAPTURE(c.bad);
  const BatchNormSpec spec = MakeSpec(lab, c);
  const auto op = lab->Make(spec);
  const std::int64_t numel = c.rows * c.shape.per_image();
  TensorStats x, dy;
  for (const double size : {1.0, 100.0, 1e-3, 10.0, 2.0}) {
    Pass pass;
    pass.rows = c.rows, pass.loss_terms = c.rows, pass.count = size == 10;
    const auto seed = static_cast<std::uint64_t>(1e6 * size);
    const auto n = static_cast<std::size_t>(c.shape.numel());
    Values x_values = Normal(n, size, seed), dy_values = Normal(n, size / 8, seed + 1);
    if (c.bad != 0 && size == 100) x_values[n / 3] = dy_values[n / 5] = c.bad;
    lab.Set(spec.x, x_values), lab.Set(spec.dy.tensor, dy_values);
    const float largest_x = LargestOf(lab, spec.x, c.rows),
                largest_dy = LargestOf(lab, spec.dy.tensor, c.rows);
    op->Forward(pass);
    op->Backward(pass);
    const TensorStats now_x = lab.Fetched(spec.x_stats), now_dy = lab.Fetched(spec.dy.stats);
    if (pass.count) {
      CheckNote(now_x, x.max_abs, numel), CheckNote(now_dy, dy.max_abs, numel);
    } else {
      CheckNote(now_x, largest_x, numel), CheckNote(now_dy, largest_dy, numel);
    }
    x = now_x, dy = now_dy;
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  // By eights, by single channels, of one part and of several, with and without fewer images.
  for (const Shape& shape : {Shape{19, 8, 8, 64}, Shape{7, 5, 5, 17}, Shape{3, 4, 4, 136}})
    for (const NumberFormat& format : {kFp16, kBf16}) {
      const int rows = static_cast<int>(shape.n);
      cases.push_back({shape, rows, format, format});
      cases.push_back({shape, rows - 1, format, format, true});
      cases.push_back({shape, rows, format, format, true, true});  // the mask comes from x
      cases.push_back({shape, rows, format, format, true, true, NAN});
      cases.push_back({shape, rows, format, format, false, false, -kInf});
      cases.push_back({shape, rows, format, format == kFp16 ? kBf16 : kFp16, true});
    }
  return cases;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("largest magnitudes left to a batch norm are those of what is stored") {
    for (const Case& c : Cases()) {
      Lab lab(MakeBackendUnderTest());
      CheckNotes(lab, c);
    }
  }

#ifndef ADA_CUDA_DEVICE
  TEST_CASE("largest magnitudes left to a batch norm do not depend on the order of threads") {
    for (const Case& c : Cases()) {
      auto stream = std::make_unique<cuda::HostStream>();
      stream->set_reverse(true);
      Lab lab(cuda::MakeBackendOn(std::move(stream), {"reverse", "host"}, {}));
      CheckNotes(lab, c);
    }
  }
#endif
}

}  // namespace ada::backend::test
