// Sums over pixels by channel, and over images: gradients of parameters.
#pragma once
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"
#include "backend/reductions.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Sums over pixels by channel ---

// Sums over pixels by channel, cut into strips (backend/reductions.h): first each strip's, by a
// thread for each of its channels, then over strips in double. start + the values of `span` at the
// places place(begin) .. place(end - 1), one after the other, in fp32.
template <class Place>
ADA_HOST_DEVICE inline float SumOfStored(const TensorSpan& span, std::int64_t begin,
                                         std::int64_t end, Place&& place, float start = 0) {
  return WithStorageType(StorageTypeOf(span.storage), [&](auto type) {
    float sum = start;
    ForEvery<16>(
        begin, end, 1, [&](std::int64_t k) { return LoadAs<type()>(span, place(k)); },
        [&](std::int64_t, float value) { sum = sum + value; });
    return sum;
  });
}

// Terms of sums, of value i of a tensor: At<kStorageType>(i) where all that a term reads is stored
// so (storage()).
struct PlainTerm {
  ADA_HOST_DEVICE StorageType storage() const { return StorageTypeOf(a.storage); }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE float At(std::int64_t i) const {
    return LoadAs<kStorageType>(a, i);
  }
  TensorSpan a;
};
struct ProductTerm {
  ADA_HOST_DEVICE StorageType storage() const { return CommonStorageType(a, b); }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE float At(std::int64_t i) const {
    return LoadAs<kStorageType>(a, i) * LoadAs<kStorageType>(b, i);
  }
  TensorSpan a, b;
};

// For all of images * strips * channels sums.
// Body of ForEach over Count(images). Within a strip pixels are added in their order, in fp32.
template <class Term>
struct StripSums {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t channel = i % channels, at = i / channels;
    const std::int64_t image = at / strips.per_image(), strip = at - image * strips.per_image();
    const std::int64_t first = (image * strips.pixels + strips.Begin(strip)) * channels + channel;
    const std::int64_t pixels = strips.Size(strip);
    sums[i] = WithStorageType(term.storage(), [&](auto type) {
      float sum = 0;
      ForEvery<16>(
          0, pixels, 1,
          [&](std::int64_t p) { return term.template At<type()>(first + p * channels); },
          [&](std::int64_t, float value) { sum = sum + value; });
      return sum;
    });
  }
  std::int64_t Count(std::int64_t images) const { return images * strips.per_image() * channels; }

  Strips strips;
  std::int64_t channels;
  float* sums;
  Term term;
};

// The sum over `count` strips from `first` on.
ADA_HOST_DEVICE inline double SumOfStrips(const float* sums, std::int64_t first, std::int64_t count,
                                          std::int64_t channels, std::int64_t channel) {
  double sum = 0;
  ForEvery<16>(
      first, first + count, 1, [&](std::int64_t k) { return sums[k * channels + channel]; },
      [&](std::int64_t, float strip) { sum += static_cast<double>(strip); });
  return sum;
}

// A parameter's gradient: value[c] = sum / scale. For all channels.
// Body of ForEach over the channels.
struct ParameterSum {
  ADA_HOST_DEVICE void operator()(std::int64_t c) const {
    const float sum = UnscaledSum(SumOfStrips(sums, 0, strips, channels, c), *scale);
    value[c] = accumulate ? value[c] + sum : sum;
  }
  const float* sums;
  std::int64_t strips, channels;  // strips: of all images of the call
  const float* scale;
  float* value;
  bool accumulate;
};

// The same for all channels together, for one thread.
struct WholeParameterSum {
  ADA_HOST_DEVICE void operator()(std::int64_t) const {
    double total = 0;
    for (std::int64_t c = 0; c < of.channels; ++c)
      total += SumOfStrips(of.sums, 0, of.strips, of.channels, c);
    const float sum = UnscaledSum(total, *of.scale);
    *of.value = of.accumulate ? *of.value + sum : sum;
  }
  ParameterSum of;
};

// Value i = (image, channel) of what has one value a channel for all pixels of an image.
struct ImageSum {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::int64_t image = i / channels;
    return static_cast<float>(
        SumOfStrips(sums, image * per_image, per_image, channels, i - image * channels));
  }
  const float* sums;
  std::int64_t per_image, channels;
};

// --- Sums over images ---

// Gradients of parameters that all images share, and a gradient that is passed on unchanged.
// dw[i] = the sum over images of dy's value i, over S, in the order of images; 0 from `values` on.
// For all of dw.
struct ImagesSum {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    if (i >= values) {
      if (!adds) dw[i] = 0;
      return;
    }
    const float sum =
        SumOfStored(dy, 0, images, [&](std::int64_t image) { return image * per_image + i; });
    const float unscaled = sum / *scale;
    dw[i] = adds ? dw[i] + unscaled : unscaled;
  }
  TensorSpan dy;
  std::int64_t images, per_image, values;
  const float* scale;
  float* dw;
  bool adds;
};

// A gradient's scale that is passed on where nothing else is done.
struct PassScaleOn {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *to = *from; }
  const float* from;
  float* to;
};

// --- The gradient of a parameter ---

// The sum of `term` over the values of all images, over `scale`, of each channel: a thread for each
// strip and channel in fp32, then one for each channel, which adds the strips in double in their
// order. `sums`: memory for the strips of the batch; the pass adds to the gradient where it
// accumulates.
template <class Term>
struct ChannelTotals {
  ChannelTotals(const Pass& pass, const Strips& strips, std::int64_t channels, const Term& term,
                float* sums, const float* scale, const Tensor& gradient)
      : strip_sums{{strips, channels, sums, term}, 0},
        totals{{sums, pass.rows * strips.per_image(), channels, scale, gradient.f32(),
                pass.accumulate},
               channels} {
    strip_sums.n = strip_sums.body.Count(pass.rows);
  }
  void LaunchAlone(Stream& stream) const {
    Launch(stream, strip_sums, strip_sums.Blocks());
    Launch(stream, totals, totals.Blocks());
  }
  ForEachKernel<StripSums<Term>> strip_sums;  // the first launch
  ForEachKernel<ParameterSum> totals;         // the second
};

// Launches both; not by_channel: the sum over all channels together.
template <class Term>
void SumTerms(Stream& stream, const Pass& pass, const Strips& strips, std::int64_t channels,
              bool by_channel, const Term& term, float* sums, const float* scale,
              const Tensor& gradient) {
  const ChannelTotals<Term> of(pass, strips, channels, term, sums, scale, gradient);
  if (by_channel) return of.LaunchAlone(stream);
  Launch(stream, of.strip_sums, of.strip_sums.Blocks());
  ForEach(stream, 1, WholeParameterSum{of.totals.body});
}

}  // namespace ada::backend::cuda
