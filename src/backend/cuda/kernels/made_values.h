// Values of layers that are defined once (backend/values/layer_values.h), for round_values.h.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/vec8.h"
#include "backend/values/layer_values.h"
#include "number/host_device.h"
#include "number/random.h"

namespace ada::backend::cuda {

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
        for (unsigned k = 0; k < 4; ++k) v.of[k] = maker(v.of[k], UniformFloat(words.of[k]));
      } else if constexpr (InputsOf<Maker>() == 2) {
        const Vec4 other = LoadVec4(b, i);
        for (int k = 0; k < 4; ++k) v.of[k] = maker(v.of[k], other.of[k]);
      } else {
        for (float& one : v.of) one = maker(one);
      }
      return v;
    } else {
      // Four values may lie in two runs where runs are no multiple of four: they are made one by
      // one.
      if (maker.runs().c % 4 != 0) {
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
