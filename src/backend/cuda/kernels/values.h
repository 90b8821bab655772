// Values of outputs that depend on few values of the inputs, for round_values.h.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/elementary.h"
#include "backend/values/layer_values.h"
#include "number/host_device.h"
#include "number/random.h"

namespace ada::backend::cuda {

// --- Functions and sums ---

// Values of outputs that depend on few values of the inputs, one by one and, where that is quicker,
// by four (round_values.h).
// x as it is.
struct SameValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Load(x, i); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const { return LoadVec4(x, i); }

  TensorSpan x;
};

// max(x, 0); NaN stays.
struct ReluValue {
  static ADA_HOST_DEVICE float Of(float x) { return x <= 0 ? 0.0f : x; }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Of(Load(x, i)); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(x, i);
    for (float& one : v.of) one = Of(one);
    return v;
  }

  TensorSpan x;
};

// dy where y is positive, else 0.
struct MaskedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return Load(y, i) > 0 ? Load(dy, i) : 0.0f;
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(dy, i);
    const Vec4 out = LoadVec4(y, i);
    for (int k = 0; k < 4; ++k) v.of[k] = out.of[k] > 0 ? v.of[k] : 0.0f;
    return v;
  }

  TensorSpan dy, y;
};

// The sum of several tensors, from left to right.
struct SumValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    float sum = Load(first, i);
    if (count > 1) sum = sum + Load(second, i);
    for (int k = 2; k < count; ++k) sum = sum + Load(all[k], i);
    return sum;
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 sum = LoadVec4(first, i);
    if (count > 1) Add(LoadVec4(second, i), sum);
    for (int k = 2; k < count; ++k) Add(LoadVec4(all[k], i), sum);
    return sum;
  }
  static ADA_HOST_DEVICE void Add(const Vec4& term, Vec4& sum) {
    for (int k = 0; k < 4; ++k) sum.of[k] = sum.of[k] + term.of[k];
  }

  TensorSpan first, second;
  const TensorSpan* all;  // in backend memory
  int count;
};

// A cast's gradient: alpha * dy; with `steps`, rounded to dy's format before it goes on.
// `steps` is that of the authors' program; alpha was written by DecideKernel before.
struct ScaledValue {
  ADA_HOST_DEVICE float Of(float x) const { return RoundToGrid(steps, x * *alpha); }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Of(Load(x, i)); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(x, i);
    for (float& one : v.of) one = Of(one);
    return v;
  }

  TensorSpan x;
  const float* alpha;  // in backend memory
  NumberGrid steps;    // exact: none
};

// a * b, of which b may have one value a channel for all pixels of an image.
struct ProductValue {
  // Where value i of a finds its factor in b.
  ADA_HOST_DEVICE std::int64_t Other(std::int64_t i) const {
    if (!gate) return i;
    const auto at = static_cast<std::uint32_t>(i);
    return std::int64_t{at / per_image} * channels + at % channels;
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Load(a, i) * Load(b, Other(i)); }

  TensorSpan a, b;
  bool gate;
  std::uint32_t per_image, channels;  // values of an image of a
};

// Several tensors' runs of values (a pixel's channels, an image), one tensor after the other.
// A Value of the concatenation op. It looks for the input by steps through the list, which is
// short.
struct JoinedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i), all = static_cast<std::uint32_t>(channels);
    const std::uint32_t pixel = at / all;
    auto channel = static_cast<int>(at - pixel * all);
    int k = 0;
    for (; channel >= parts[k]; ++k) channel -= parts[k];
    return Load(x[k], std::int64_t{pixel} * parts[k] + channel);
  }

  const TensorSpan* x;  // in backend memory, as `parts`
  const int* parts;     // the run of each
  int channels;         // of all
};

// --- Embeddings ---

// Values of embeddings, and sums of their gradients, in the order of places.
// The row of w that a place's token has.
struct GatheredValue {
  ADA_HOST_DEVICE std::int64_t Where(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t place = at / channels;
    return std::int64_t{tokens[place]} * channels + (at - place * channels);
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return w[Where(i)]; }
  // A row that is no multiple of four may end between the four values.
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    if (channels % 4 == 0) return reinterpret_cast<const Vec4*>(w)[Where(i) / 4];
    Vec4 v;
    for (int k = 0; k < 4; ++k) v.of[k] = (*this)(i + k);
    return v;
  }
  const float* w;
  const std::int32_t* tokens;
  std::uint32_t channels;
};

// dw of an embedding: the sum of dy over a token's positions, in order, divided by S; with `adds`
// it is added to dw. `first` and `places`: of the sorted places of the batch.
// Body of ForEach over the values of dw.
struct PlacesSum {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t token = at / channels, channel = at - token * channels;
    const std::int32_t begin = first[token], end = first[token + 1];
    // A token without a place has a zero gradient, or what was there.
    if (begin == end) {
      if (!adds) dw[i] = 0;
      return;
    }
    const auto place = [&](std::int64_t k) { return std::int64_t{places[k]} * channels + channel; };
    const float sum = SumOfStored(dy, begin + 1, end, place, Load(dy, place(begin)));
    const float unscaled = sum / *scale;
    dw[i] = adds ? dw[i] + unscaled : unscaled;
  }
  const std::int32_t *first, *places;
  TensorSpan dy;
  std::uint32_t channels;
  const float* scale;
  float* dw;
  bool adds;
};

// --- Softmax of a position ---

// Softmax of each position's channels (SoftmaxSpec).
// The largest score of a position, and the sum of e^(score - that) over its channels.
struct PositionSum {
  double sum;
  float top;
  ADA_HOST_DEVICE float Of(float z) const {
    return static_cast<float>(Exponential(static_cast<double>(z) - static_cast<double>(top)) / sum);
  }
};
// For all positions. A NaN makes its whole position NaN.
struct SumPositions {
  ADA_HOST_DEVICE void operator()(std::int64_t position) const {
    const std::int64_t first = position * channels;
    float top = -HUGE_VALF;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float z = Load(x, first + c);
      top = z > top ? z : top;
    }
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c)
      sum += Exponential(static_cast<double>(Load(x, first + c)) - static_cast<double>(top));
    to[position] = {sum, top};
  }
  TensorSpan x;
  std::int64_t channels;
  PositionSum* to;
};
// Probability i, for RoundingStats::Round: unrounded, from the sums of SumPositions.
struct SoftmaxValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return sums[static_cast<std::uint32_t>(i) / channels].Of(Load(x, i));
  }
  TensorSpan x;
  const PositionSum* sums;
  std::uint32_t channels;
};

// The sum of p dy over a position's channels, for all positions.
struct SumSlopes {
  ADA_HOST_DEVICE void operator()(std::int64_t position) const {
    double sum = 0;
    for (std::int64_t c = 0; c < p.channels; ++c) {
      const std::int64_t i = position * p.channels + c;
      sum += static_cast<double>(p(i)) * static_cast<double>(Load(dy, i));
    }
    to[position] = sum;
  }
  SoftmaxValue p;
  TensorSpan dy;
  double* to;
};
// dx of one value, p (dy - sum of p dy), for RoundingStats::Round.
struct SoftmaxSlope {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const double sum = sums[static_cast<std::uint32_t>(i) / p.channels];
    return static_cast<float>(static_cast<double>(p(i)) * (static_cast<double>(Load(dy, i)) - sum));
  }
  SoftmaxValue p;
  TensorSpan dy;
  const double* sums;
};

// --- Layers that are defined once ---

// Value c of a run. Tensors have fewer than 2^32 values (rounding/rounding_stats.cpp).
struct RunValue {
  RunIndex run;
  int c;
};
// Which run of which image value i lies in: divisions of 32 bits, since those of 64 are slow on a
// device.
ADA_HOST_DEVICE inline RunValue RunValueOf(const ImageShape& shape, std::int64_t i) {
  const auto at = static_cast<std::uint32_t>(i);
  const std::uint32_t runs = at / static_cast<std::uint32_t>(shape.c);
  const std::uint32_t rows = runs / static_cast<std::uint32_t>(shape.w);
  const std::uint32_t image = rows / static_cast<std::uint32_t>(shape.h);
  const auto rest = [](std::uint32_t all, std::uint32_t whole, int size) {
    return static_cast<int>(all - whole * static_cast<std::uint32_t>(size));
  };
  return {{image, rest(rows, image, shape.h), rest(runs, rows, shape.w)}, rest(at, runs, shape.c)};
}

// What makers that gather read.
struct StoredInput {
  ADA_HOST_DEVICE float operator[](std::int64_t i) const { return Load(span, i); }
  TensorSpan span;
};

// A Value for RoundingStats::Round and Move, and a term for sums of parameters: what a maker, of
// any kind of Makes, computes from a and (with two inputs) b.
template <class Maker>
struct MadeValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return At<StorageType::kAny>(i); }
  ADA_HOST_DEVICE StorageType storage() const {
    if constexpr (InputsOf<Maker>() == 2) return CommonStorageType(a, b);
    return StorageTypeOf(a.storage);
  }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE float At(std::int64_t i) const {
    if constexpr (Maker::kMakes == Makes::kEach) {
      const float x = LoadAs<kStorageType>(a, i);
      if constexpr (IsRandom<Maker>())
        return maker(x, UniformFloat(RandomWord(pass->seed ^ maker.stream, pass->draw, first + i)));
      else if constexpr (InputsOf<Maker>() == 2)
        return maker(x, LoadAs<kStorageType>(b, i));
      else
        return maker(x);
    } else {
      float value = 0;
      const RunValue at = RunValueOf(maker.runs(), i);
      WithRun(at.run, [&](const auto& of) { value = of(at.c, i); });
      return value;
    }
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v;
    if constexpr (Maker::kMakes == Makes::kEach) {
      v = LoadVec4(a, i);
      if constexpr (IsRandom<Maker>()) {
        const Vec4Words words = RandomWords(pass->seed ^ maker.stream, pass->draw, first + i);
        ADA_UNROLL
        for (unsigned k = 0; k < 4; ++k) v.of[k] = maker(v.of[k], UniformFloat(words.of[k]));
      } else if constexpr (InputsOf<Maker>() == 2) {
        const Vec4 other = LoadVec4(b, i);
        ADA_UNROLL
        for (int k = 0; k < 4; ++k) v.of[k] = maker(v.of[k], other.of[k]);
      } else {
        ADA_UNROLL
        for (int k = 0; k < 4; ++k) v.of[k] = maker(v.of[k]);
      }
      return v;
    } else {
      // Four values may lie in two runs where runs are no multiple of four: they are made one by
      // one.
      if (maker.runs().c % 4 != 0) {
        ADA_UNROLL
        for (int k = 0; k < 4; ++k) v.of[k] = (*this)(i + k);
        return v;
      }
      const RunValue at = RunValueOf(maker.runs(), i);
      if constexpr (Maker::kMakes == Makes::kMoves) {
        const MovedRun run = maker.From(at.run);
        const std::int64_t from = run.from + (at.c - run.begin);
        // Four values that lie together in the input are loaded at once.
        if (run.step == 1 && at.c >= run.begin && at.c + 4 <= run.end && from % 4 == 0)
          return LoadVec4(a, from);
      }
      WithRun(at.run, [&](const auto& of) {
        ADA_UNROLL
        for (int k = 0; k < 4; ++k) v.of[k] = of(at.c + k, i + k);
      });
      return v;
    }
  }

  // use(of), where of(c, i) is value c of the run, which is value i of the output.
  template <class Use>
  ADA_HOST_DEVICE void WithRun(const RunIndex& at, Use&& use) const {
    if constexpr (Maker::kMakes == Makes::kRuns) {
      RandomNumbers random;
      if constexpr (requires { maker.stream; })
        random = {pass->seed ^ maker.stream, pass->draw, first};
      const auto run = maker.Run(at, random);
      use([&](int c, std::int64_t i) {
        if constexpr (InputsOf<Maker>() == 2)
          return run(c, Load(a, i), Load(b, i));
        else
          return run(c, Load(a, i));
      });
    } else if constexpr (Maker::kMakes == Makes::kGathers) {
      const auto run = maker.Run(at, StoredInput{a});
      use([&](int c, std::int64_t) { return run(c); });
    } else if constexpr (Maker::kMakes == Makes::kSums) {
      use([&](int c, std::int64_t) {
        // The order of terms is the maker's, as on a CPU: sums of fp32 depend on it.
        float sum = 0;
        maker.ForTerms(
            at, [&](std::int64_t from, float share) { sum = sum + Load(a, from + c) * share; });
        return sum;
      });
    } else {
      const MovedRun run = maker.From(at);
      use([&](int c, std::int64_t) {
        // Values of a run that do not come from the input are zero.
        if (c < run.begin || c >= run.end) return 0.0f;
        return Load(a, run.from + std::int64_t{c - run.begin} * run.step);
      });
    }
  }

  Maker maker;
  TensorSpan a, b;
  const PassValues* pass = nullptr;
  std::int64_t first = 0;  // of random numbers: value 0, or image 0, in the batch of all processes
};
// What is only moved.
template <class Maker>
MadeValue<Maker> Moved(const Maker& maker, const Tensor& from) {
  static_assert(Moves<Maker>());
  return {maker, SpanOf(from), {}};
}

}  // namespace ada::backend::cuda
