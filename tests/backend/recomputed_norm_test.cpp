// A batch norm that is never stored: with its reader it leaves the same bits as the same two ops
// with a tensor between them, in every tensor, count, histogram and moment.
#include <doctest/doctest.h>

#include <map>
#include <optional>

#include "backend/naive_batch_norm.h"
#include "backend/naive_matmul.h"
#include "backend/styles.h"
#include "scaling/policies/policies.h"

namespace ada::backend::test {
namespace {

struct Setting {
  NumberFormat y = kFp16, dx = kFp16;  // of the batch norm's output, of its gradient
  bool relu = true, stochastic = false, observed = true;
  float y_scale = 0, dx_scale = 0;  // delayed scaling
  bool accumulate = false;
  double alpha = 4;
  scaling::LayerMethod method = scaling::LayerMethod::kFixed;
  bool reference = false;
  // The method of the batch norm, where it chooses a scale.
  std::optional<scaling::LayerMethod> norm_method = std::nullopt;
};

using Bytes = std::vector<std::byte>;
template <class T>
Bytes BytesOf(const T& value) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  return {begin, begin + sizeof value};
}
Bytes BytesOf(const Tensor& t) { return {t.data, t.data + t.bytes()}; }

// Fields one by one: there are bytes between them.
void Note(std::map<std::string, Bytes>& into, const std::string& name, const TensorStats& s) {
  const std::int64_t counts[] = {s.numel,     s.zeros_before, s.zeros_after, s.underflow,
                                 s.below_min, s.subnormal,    s.overflow,    s.inf,
                                 s.nan,       s.above_edge,   s.full};
  const double sizes[] = {
      static_cast<double>(s.min_abs), static_cast<double>(s.max_abs), s.mean, s.std, s.l1, s.l2};
  into[name + " counts"] = BytesOf(counts), into[name + " sizes"] = BytesOf(sizes);
}
void Note(std::map<std::string, Bytes>& into, const std::string& name, const Gradient& g) {
  into[name] = BytesOf(g.tensor), into[name + " scale"] = BytesOf(*g.scale);
  Note(into, name + " stats", *g.stats);
  const TensorMoments& m = *g.moments;
  const double moments[] = {m.mean, m.mean_square, static_cast<double>(m.min),
                            static_cast<double>(m.max), static_cast<double>(m.min_abs)};
  into[name + " moments"] = BytesOf(moments);
}

// x -> batch norm (relu) -> product; the same inputs whether the batch norm's output is stored.
class Pair {
 public:
  Pair(const MatmulCase& c, const Setting& setting, int threads)
      : setting_(setting),
        bench_(threads),
        norm_(bench_, {"bn", c.x, 0, false, setting.relu}, kFp16, 1),
        product_(bench_, c, kFp16, 8, setting.alpha),
        y_style_(setting.stochastic, 1, setting.y_scale),
        dx_style_(setting.stochastic, 2, setting.dx_scale) {
    BatchNormSpec& b = norm_.spec;
    MatmulSpec& p = product_.spec;
    b.out = p.x = MakeFor(bench_, c.x, setting.y, y_style_);
    b.y_style = y_style_.style, b.y_style.bins = &y_bins_;
    b.y_format = setting.y;
    p.dx = GradientFor(bench_, c.x, setting.dx, dx_style_);
    p.dx.style.bins = &dx_bins_;
    b.dy = p.dx;
    product_.scaler.rule.method = setting.method;
    product_.scaler.rule.reference = setting.reference;
    product_.scaler.rule.u_min = setting.dx.smallest_subnormal();
    product_.scaler.rule.u_max = setting.dx.largest();
    if (!setting.observed) p.dx.moments = nullptr;
    norm_scaler_.rule = product_.scaler.rule;
    norm_scaler_.rule.reference = false;
    norm_scaler_.rule.method = setting.norm_method.value_or(scaling::LayerMethod::kPass);
    norm_scaler_.rule.fixed_scale = 32;
  }

  std::map<std::string, Bytes> Run(bool recomputed, const std::vector<Pass>& passes) {
    Reset();
    BatchNormSpec b = norm_.spec;
    if (setting_.norm_method) b.scaler = &norm_scaler_;
    MatmulBench reader = product_;
    if (recomputed) {
      b.recomputed = reader.spec.recomputed = Defer();
      b.out.data = reader.spec.x.data = nullptr;
    }
    reader.spec.scaler = &product_.scaler;
    const auto norm = bench_->Make(b);
    const auto product = reader.MakeOp(bench_);
    REQUIRE(norm);
    REQUIRE(product);
    product->RefreshWeights(passes[0]);
    std::map<std::string, Bytes> result;
    for (const Pass& pass : passes) {
      norm->Forward(pass), product->Forward(pass);
      product->Backward(pass), norm->Backward(pass);
      Take(result, std::to_string(result.size()));
    }
    return result;
  }
  // Bytes of z's memory: what the stored run leaves there.
  Bytes Z() const { return BytesOf(norm_.spec.out); }
  void ClearZ() const { std::memset(norm_.spec.out.data, 0, norm_.spec.out.bytes()); }

 private:
  RecomputedNorm Defer() {
    const BatchNormSpec& b = norm_.spec;
    const std::int64_t c = b.x.shape.c, images = bench_->BlockImages(b.x.shape);
    const std::int64_t blocks = (b.x.shape.n + images - 1) / images;
    RecomputedNorm norm;
    norm.raw = b.x, norm.z = b.out, norm.z.data = nullptr;
    norm.relu = b.relu, norm.beta = b.beta.f32();
    norm.y_stats = b.y_stats, norm.y_style = b.y_style;
    const auto vector = [&](std::int64_t n) { return bench_.Make({1, 1, 1, n}, kFp32).f32(); };
    norm.mean = vector(c), norm.inverse = vector(c), norm.factor = vector(c);
    norm.sum_dy = vector(blocks * c), norm.sum_dy_xhat = vector(blocks * c);
    return norm;
  }
  // What a run reads of an earlier one, or leaves alone after the last image.
  void Reset() {
    const BatchNormSpec& b = norm_.spec;
    const MatmulSpec& p = product_.spec;
    for (const Tensor& t : {b.dgamma, b.dbeta, p.dw, p.db, p.y, p.dx.tensor, b.dx.tensor})
      if (t) std::memset(t.data, 0, t.bytes());
    const auto c = static_cast<std::size_t>(b.x.shape.c);
    Bench::Set(b.running_mean, Values(c, 0.5f)), Bench::Set(b.running_var, Values(c, 2));
    *b.y_stats = {}, *p.y_stats = {}, *p.dx.stats = {}, *b.dx.stats = {};
    y_bins_ = {}, dx_bins_ = {};
    product_.scaler.decision = norm_scaler_.decision = {};
    norm_scaler_.state = {};
  }
  void Take(std::map<std::string, Bytes>& result, const std::string& step) {
    const BatchNormSpec& b = norm_.spec;
    const MatmulSpec& p = product_.spec;
    result[step + " y"] = BytesOf(p.y);
    Note(result, step + " y of the batch norm", *b.y_stats);
    Note(result, step + " y of the product", *p.y_stats);
    Note(result, step + " dw", *p.dw_stats);
    Gradient dx = p.dx;
    TensorMoments none;
    if (dx.moments == nullptr) dx.moments = &none;
    Note(result, step + " dx of the product", dx);
    Note(result, step + " dx of the batch norm", b.dx);
    for (const Tensor& t : {p.dw, p.db, b.dgamma, b.dbeta, b.running_mean, b.running_var})
      if (t) result[step + " parameter " + std::to_string(result.size())] = BytesOf(t);
    result[step + " bins of y"] = BytesOf(y_bins_);
    result[step + " bins of dx"] = BytesOf(dx_bins_);
    result[step + " alpha"] = BytesOf(product_.scaler.decision.alpha);
    result[step + " alpha of the batch norm"] = BytesOf(norm_scaler_.decision.alpha);
    result[step + " unbound of the batch norm"] = BytesOf(norm_scaler_.decision.unbound);
    result[step + " tail of the batch norm"] = BytesOf(norm_scaler_.state.tail);
  }

  Setting setting_;
  Bench bench_;
  BatchNormBench norm_;
  MatmulBench product_;
  scaling::LayerScaler norm_scaler_;
  Style y_style_, dx_style_;
  ExponentBins y_bins_, dx_bins_;
};

void CheckSame(const std::map<std::string, Bytes>& a, const std::map<std::string, Bytes>& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, bytes] : a) {
    CAPTURE(name);
    CHECK((b.at(name) == bytes));
  }
}

Pass PassOf(int rows, bool count) {
  Pass pass = Drawing(rows);
  pass.count = pass.bins = count;
  pass.edge = 0.25;
  return pass;
}

void CheckPair(const MatmulCase& c, const Setting& setting, const std::vector<Pass>& passes) {
  std::optional<std::map<std::string, Bytes>> first;
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    Pair pair(c, setting, threads);
    const auto stored = pair.Run(false, passes);
    pair.ClearZ();
    const auto recomputed = pair.Run(true, passes);
    CHECK((pair.Z() == Bytes(pair.Z().size())));  // nobody wrote it
    CheckSame(stored, recomputed);
    if (first) CheckSame(*first, recomputed);
    first = recomputed;
  }
}

const MatmulCase& Middle() {  // blocks of 4 images, chunks of several
  static const MatmulCase c{"middle", {37, 16, 16, 16}, 20, {3, 3}, {1, 1}, {1, 1}};
  return c;
}

TEST_SUITE("cpu") {
  TEST_CASE("recomputed: every kind of product, with and without relu") {
    for (const MatmulCase& c : AllMatmuls())
      for (const bool relu : {true, false}) {
        CAPTURE(c.name);
        CAPTURE(relu);
        Setting setting;
        setting.relu = relu;
        CheckPair(c, setting, {PassOf(static_cast<int>(c.x.n), true)});
      }
  }

  TEST_CASE("recomputed: every format and storage, rounded to nearest, stochastically, scaled") {
    for (const Kind& kind : AllKinds())
      for (const int way : {0, 1, 2, 3}) {
        if (kind.storage != StorageFor(kind.format)) continue;
        CAPTURE(kind.name);
        CAPTURE(way);
        Setting setting;
        setting.y = setting.dx = kind.format;
        setting.stochastic = way % 2 == 1;
        if (way >= 2) setting.y_scale = 13, setting.dx_scale = 640;
        CheckPair(Middle(), setting, {PassOf(21, true)});
      }
  }

  TEST_CASE("recomputed: fewer rows, later micro-batches, passes that count and that do not") {
    for (const bool relu : {true, false})
      for (const bool observed : {true, false}) {
        CAPTURE(relu);
        CAPTURE(observed);
        Setting setting;
        setting.relu = relu, setting.observed = observed, setting.stochastic = true;
        std::vector<Pass> passes = {PassOf(37, true), PassOf(5, true), PassOf(36, false),
                                    PassOf(1, true), PassOf(37, false)};
        for (std::size_t i = 0; i < passes.size(); ++i) {
          passes[i].accumulate = i > 1;
          passes[i].draw += i;
        }
        CheckPair(Middle(), setting, passes);
      }
  }

  TEST_CASE("recomputed: rules that look at dx see it before it is masked") {
    for (const scaling::LayerMethod method :
         {scaling::LayerMethod::kPass, scaling::LayerMethod::kExactRange,
          scaling::LayerMethod::kApproxRange})
      for (const bool reference : {false, true}) {
        CAPTURE(static_cast<int>(method));
        CAPTURE(reference);
        Setting setting;
        setting.method = method, setting.reference = reference;
        CheckPair(Middle(), setting, {PassOf(37, true), PassOf(30, false)});
      }
  }

  TEST_CASE("recomputed: a batch norm that chooses a scale looks at dy after its mask") {
    for (const scaling::LayerMethod method : scaling::kAdaptiveMethods)
      for (const bool relu : {true, false})
        for (const NumberFormat& dx : {kFp16, kFp8E5M2}) {
          CAPTURE(static_cast<int>(method));
          CAPTURE(relu);
          Setting setting;
          setting.dx = dx, setting.relu = relu, setting.norm_method = method;
          CheckPair(Middle(), setting, {PassOf(37, true), PassOf(30, false), PassOf(37, true)});
        }
  }

  TEST_CASE("recomputed: running statistics where the pass does not train") {
    for (const bool relu : {true, false}) {
      Setting setting;
      setting.relu = relu, setting.stochastic = true;
      Pass pass = PassOf(23, true);
      pass.training = false;
      CheckPair(Middle(), setting, {pass});
    }
  }

  TEST_CASE("recomputed: values that are not finite") {
    Setting setting;
    setting.y = kFp8E5M2, setting.dx = kFp16, setting.alpha = 1e9;  // dx overflows
    CheckPair(Middle(), setting, {PassOf(37, true)});
  }
}

}  // namespace
}  // namespace ada::backend::test
