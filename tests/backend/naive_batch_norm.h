// Batch norm in double, from the definition, and the op on a backend to compare with it.
#pragma once
#include <string>

#include "backend/op_bench.h"

namespace ada::backend::test {

struct BatchNormCase {
  std::string name;
  Shape x;
  int rows;
  bool addend = false, relu = false;
};

inline std::vector<BatchNormCase> BatchNormCases() {
  return {{"1 channel", {3, 5, 5, 1}, 3},
          {"flat, 10 channels", {7, 1, 1, 10}, 7, false, true},
          {"17 channels, 3 blocks", {19, 8, 8, 17}, 19},
          {"tail of a block", {19, 8, 8, 17}, 13, true, true},
          {"33 channels", {6, 4, 7, 33}, 4, true, false},
          {"a block an image", {5, 32, 32, 16}, 5, true, true},
          {"a block an image, tail", {5, 32, 32, 16}, 3, false, true}};
}

struct BatchNormBench {
  BatchNormBench(Bench& bench, const BatchNormCase& c, const NumberFormat& format, float scale) {
    const auto n = static_cast<std::size_t>(c.x.numel()), k = static_cast<std::size_t>(c.x.c);
    Values x = Normal(n, 1.5, 1), var = Normal(k, 1, 4);
    for (std::size_t i = 0; i < n; ++i) x[i] += 0.1f * static_cast<float>(i % k);
    for (float& v : var) v = 0.5f + v * v;
    spec.x = bench.Make(c.x, format, x);
    spec.gamma = bench.Vector(Normal(k, 1, 2)), spec.beta = bench.Vector(Normal(k, 1, 3));
    spec.running_mean = bench.Vector(Normal(k, 1, 5)), spec.running_var = bench.Vector(var);
    if (c.addend) spec.addend = bench.Make(c.x, format, Normal(n, 1, 6));
    spec.relu = c.relu;
    spec.out = bench.Make(c.x, format), spec.y_format = format;
    spec.y_stats = bench.Stats(), spec.sum_stats = c.addend ? bench.Stats() : nullptr;
    spec.dy = bench.MakeGradient(c.x, format, Normal(n, 1, 7), scale);
    spec.dx = bench.MakeGradient(c.x, format);
    spec.dgamma = bench.Vector(Values(k)), spec.dbeta = bench.Vector(Values(k));
  }
  BatchNormSpec spec;
};

// What the definition needs of one channel.
struct ChannelTruth {
  double mean = 0, var = 0, mean_dy = 0, mean_dy_xhat = 0;         // over the batch
  double mean_abs_dy = 0, mean_abs_dy_xhat = 0, unbiased_var = 0;  // magnitudes for bounds
};

class NaiveBatchNorm {
 public:
  // `training`: statistics of the first `rows` images, else the running ones.
  NaiveBatchNorm(const BatchNormSpec& spec, int rows, bool training)
      : spec_(spec),
        channels_(static_cast<std::size_t>(spec.x.shape.c)),
        size_(static_cast<std::size_t>(rows * spec.x.shape.per_image())),
        x_(Bench::Get(spec.x)),
        gamma_(Bench::Get(spec.gamma)),
        beta_(Bench::Get(spec.beta)),
        truth_(channels_) {
    const double count = static_cast<double>(size_ / channels_);
    for (std::size_t i = 0; i < size_; ++i) At(i).mean += X(i) / count;
    for (std::size_t i = 0; i < size_; ++i) At(i).var += std::pow(X(i) - At(i).mean, 2) / count;
    for (ChannelTruth& t : truth_) t.unbiased_var = t.var * count / (count - 1);
    for (std::size_t c = 0; !training && c < channels_; ++c) {
      truth_[c].mean = static_cast<double>(spec.running_mean.f32()[c]);
      truth_[c].var = static_cast<double>(spec.running_var.f32()[c]);
    }
  }
  const std::vector<ChannelTruth>& truth() const { return truth_; }

  Sums Y() {
    Sums y(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      const auto beta = static_cast<double>(beta_[i % channels_]);
      y[i] = {(X(i) - At(i).mean) * Factor(i) + beta,
              (std::fabs(X(i)) + std::fabs(At(i).mean)) * std::fabs(Factor(i)) + std::fabs(beta)};
    }
    return y;
  }
  // Gradients of dy (masked already, scale included).
  Sums Dx(const Values& dy) {
    Reduce(dy);
    Sums dx(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      const ChannelTruth& t = At(i);
      const auto g = static_cast<double>(dy[i]);
      dx[i] = {
          (g - t.mean_dy - Xhat(i) * t.mean_dy_xhat) * Factor(i),
          (std::fabs(g) + t.mean_abs_dy + AbsXhat(i) * t.mean_abs_dy_xhat) * std::fabs(Factor(i))};
    }
    return dx;
  }
  // After Dx: sums over the batch, divided by `scale`.
  Sums Dgamma(double scale) const {
    Sums r;
    for (const ChannelTruth& t : truth_) r.push_back({t.mean_dy_xhat, t.mean_abs_dy_xhat});
    for (Exact& e : r) e *= static_cast<double>(size_ / channels_) / scale;
    return r;
  }
  Sums Dbeta(double scale) const {
    Sums r;
    for (const ChannelTruth& t : truth_) r.push_back({t.mean_dy, t.mean_abs_dy});
    for (Exact& e : r) e *= static_cast<double>(size_ / channels_) / scale;
    return r;
  }

 private:
  ChannelTruth& At(std::size_t i) { return truth_[i % channels_]; }
  double X(std::size_t i) const { return static_cast<double>(x_[i]); }
  double Inverse(std::size_t i) {
    return 1 / std::sqrt(At(i).var + static_cast<double>(spec_.eps));
  }
  double Factor(std::size_t i) { return static_cast<double>(gamma_[i % channels_]) * Inverse(i); }
  double Xhat(std::size_t i) { return (X(i) - At(i).mean) * Inverse(i); }
  double AbsXhat(std::size_t i) { return (std::fabs(X(i)) + std::fabs(At(i).mean)) * Inverse(i); }
  void Reduce(const Values& dy) {
    const double count = static_cast<double>(size_ / channels_);
    for (ChannelTruth& t : truth_)
      t.mean_dy = t.mean_dy_xhat = t.mean_abs_dy = t.mean_abs_dy_xhat = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      ChannelTruth& t = At(i);
      const double g = static_cast<double>(dy[i]) / count;
      t.mean_dy += g, t.mean_abs_dy += std::fabs(g);
      t.mean_dy_xhat += g * Xhat(i), t.mean_abs_dy_xhat += std::fabs(g) * AbsXhat(i);
    }
  }

  const BatchNormSpec& spec_;
  std::size_t channels_, size_;
  Values x_, gamma_, beta_;
  std::vector<ChannelTruth> truth_;
};

}  // namespace ada::backend::test
