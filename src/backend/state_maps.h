// States of an optimizer in few bits: the values that codes stand for, and how a block of values
// becomes codes times a scale. Sources: bitsandbytes' functional.create_dynamic_map and its
// blockwise kernels; torchao's optim/quant_utils.py and subclass_{4bit,8bit,fp8}.py; Transformer
// Engine's optimizers/fused_adam.py. Host only.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/update.h"
#include "number/number_grid.h"
#include "number/tensor.h"

namespace ada::backend {

// The values of a map in rising order, and what lies between two of them. Ties go up in torchao and
// down in bitsandbytes.
struct StateMap {
  std::vector<float> values;
  std::vector<float> middles;  // bitsandbytes: a code is the number of middles below
  bool ties_up = true;

  std::uint8_t CodeOf(float x) const {
    if (!ties_up) {
      const auto at = std::lower_bound(middles.begin(), middles.end(), x);
      return static_cast<std::uint8_t>(at - middles.begin());
    }
    const auto above = std::upper_bound(values.begin() + 1, values.end() - 1, x);
    const auto at = static_cast<std::size_t>(above - values.begin()) - 1;
    const float low = values[at], high = values[at + 1];
    return static_cast<std::uint8_t>(at + (x - low >= (high - low) * 0.5f ? 1 : 0));
  }
};

// The tree of bits / exponents of Dettmers (arXiv 1511.04561): the middles of equal parts of
// 0.1 .. 1, times powers of ten.
inline std::vector<float> DynamicMap(bool is_signed, int exponents, int bits) {
  std::vector<float> values = {0.0f, 1.0f};
  for (int e = 0; e < exponents; ++e) {
    const int parts = 1 << (e + bits - 1 - exponents + (is_signed ? 0 : 1));
    const double step = static_cast<double>((1.0f - 0.1f) / static_cast<float>(parts));
    const auto edge = [&](int i) {  // torch.linspace in fp32, from the nearer end
      return i < (parts + 1) / 2 ? static_cast<float>(static_cast<double>(0.1f) + step * i)
                                 : static_cast<float>(1.0 - step * (parts - i));
    };
    const float power = static_cast<float>(std::pow(10.0, e - (exponents - 1)));
    for (int i = 0; i < parts; ++i) {
      const float value = (edge(i) + edge(i + 1)) / 2 * power;
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

inline const StateMap& MapOf(const StateStorage& kept) {
  using Map = StateStorage::Map;
  const auto make = [](Map map, bool is_signed) {
    StateMap made;
    made.ties_up = map != Map::kBitsandbytes;
    if (map != Map::kTorchao4) {
      made.values = DynamicMap(is_signed, 7, 8);
    } else if (is_signed) {
      made.values = DynamicMap(true, 3, 4);
    } else {  // without a zero
      for (int i = 1; i <= 16; ++i) made.values.push_back(static_cast<float>(i) / 16);
    }
    for (std::size_t i = 0; i + 1 < made.values.size(); ++i)
      made.middles.push_back((made.values[i] + made.values[i + 1]) / 2);
    return made;
  };
  static const std::array<StateMap, 6> maps = {
      make(Map::kTorchao8, true),  make(Map::kTorchao8, false),    make(Map::kTorchao4, true),
      make(Map::kTorchao4, false), make(Map::kBitsandbytes, true), make(Map::kBitsandbytes, false)};
  const int first = kept.map == Map::kTorchao8 ? 0 : kept.map == Map::kTorchao4 ? 2 : 4;
  return maps[static_cast<std::size_t>(first + (kept.is_signed ? 0 : 1))];
}

// Whether a tensor of so many values is kept in codes.
inline bool IsCoded(const StateStorage& kept, std::int64_t values) {
  if (!kept.is_scaled() || values < kept.from) return false;
  return !kept.whole || values % kept.block == 0;
}
// How many values share a scale, and how many scales there are.
inline std::int64_t BlockOf(const StateStorage& kept, std::int64_t values) {
  return kept.scaling == StateStorage::Scaling::kTensor ? std::max<std::int64_t>(values, 1)
                                                        : kept.block;
}
inline std::int64_t ScalesOf(const StateStorage& kept, std::int64_t values) {
  if (!IsCoded(kept, values)) return 0;
  const std::int64_t block = BlockOf(kept, values);
  return (values + block - 1) / block;
}

// The scale of values whose largest magnitude this is.
inline float StateScale(const StateStorage& kept, float largest) {
  const float scale = std::max(largest, kept.least);
  return kept.top == 1 ? scale : scale / static_cast<float>(kept.top);
}

// A value divided by its scale as it is stored; times the scale it is what the next update reads.
struct StateCoder {
  explicit StateCoder(const StateStorage& kept)
      : map(kept.map == StateStorage::Map::kFormat ? nullptr : &MapOf(kept)),
        grid(GridOf(Saturating(kept.format))),
        by_reciprocal(kept.scaling == StateStorage::Scaling::kTensor && map == nullptr &&
                      !HasValuesOf(kFp16, kept.format)) {}
  float Scaled(float x, float scale) const {
    const float scaled = !(scale > 0) ? 0.0f : Inverts(scale) ? x * (1 / scale) : x / scale;
    return map != nullptr ? map->values[map->CodeOf(scaled)] : RoundToGrid(grid, scaled);
  }
  float operator()(float x, float scale) const {
    return Scaled(x, scale) * (Inverts(scale) ? 1 / (1 / scale) : scale);
  }

  const StateMap* map;
  NumberGrid grid;
  bool by_reciprocal;  // as Transformer Engine's quantizers of fp8 have it, and its fp16 does not

 private:
  // The reciprocal of 0, and of the smallest numbers, is infinite.
  bool Inverts(float scale) const { return by_reciprocal && std::isfinite(1 / scale); }
  static NumberFormat Saturating(NumberFormat format) {
    format.saturate = true;
    return format;
  }
};

// How a rule keeps its state `index`.
inline StateStorage StateStorageOf(const UpdateRule& rule, std::size_t index) {
  if (rule.states != nullptr) return (*rule.states)[index];
  StateStorage kept;
  static_cast<StorageFormat&>(kept) = rule.state;
  return kept;
}

}  // namespace ada::backend
