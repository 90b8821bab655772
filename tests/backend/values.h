// Inputs of the backend's tests (every kind of fp32 value) and memory in any storage. Not for ops:
// those get their tensors from op_bench.h.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "number/independent.h"
#include "number/number_format.h"
#include "number/random.h"
#include "number/tensor.h"

namespace ada::backend::test {

using Values = std::vector<float>;

// A format and the memory that holds its values: what kernels tell apart.
struct Kind {
  std::string name;
  NumberFormat format;
  Storage storage;
};
inline const std::vector<Kind>& MainKinds() {
  static const std::vector<Kind> kinds = {{"fp32", kFp32, Storage::kF32},
                                          {"fp16", kFp16, Storage::kF16},
                                          {"bf16", kBf16, Storage::kBF16}};
  return kinds;
}
// Every way of rounding: all families of formats, saturating or not, named and odd, in each
// storage.
inline const std::vector<Kind>& AllKinds() {
  static const std::vector<Kind> kinds = [] {
    std::vector<Kind> all = MainKinds();
    const auto add = [&all](const std::string& name, NumberFormat format, Storage storage) {
      all.push_back({name, format, storage});
    };
    const auto saturating = [](NumberFormat format) {
      format.saturate = true;
      return format;
    };
    for (const NamedFormat& named : NamedFormats())
      if (named.format != kFp32 && named.format != kFp16 && named.format != kBf16)
        add(std::string(named.name), named.format, StorageFor(named.format));
    for (const Kind& kind : MainKinds())
      add(kind.name + " saturating", saturating(kind.format), kind.storage);
    add("fp8_e4m3 saturating", saturating(kFp8E4M3), Storage::kF16);
    add("fp16 in fp32", kFp16, Storage::kF32);
    add("bf16 in fp32", kBf16, Storage::kF32);
    add("fp8_e4m3 in fp32", kFp8E4M3, Storage::kF32);
    add("{5, 2} in fp32", {5, 2, 15}, Storage::kF32);
    add("fp8_e4m3_fnuz in bf16", {4, 3, 8, false, true, false}, Storage::kBF16);
    add("{5, 23}", {5, 23, 15}, Storage::kF32);  // only its subnormals are rounded
    add("{1, 3}", {1, 3, 0}, Storage::kF16);     // nothing but subnormals
    add("{4, 0} without inf", {4, 0, 7, false}, Storage::kF16);
    add("{8, 5} at fp32's low end", {8, 5, 139, false}, Storage::kF32);
    add("{4, 3} at fp32's high end", {4, 3, -113}, Storage::kF32);
    return all;
  }();
  return kinds;
}

inline Values RandomBits(std::size_t n, std::uint64_t seed) {
  RandomStream random(seed, StreamId("bits"));
  Values values(n);
  for (float& v : values) v = std::bit_cast<float>(random.NextU32());
  return values;
}
inline Values Normal(std::size_t n, double sigma, std::uint64_t seed) {
  RandomStream random(seed, StreamId("normal"));
  Values values(n);
  for (float& v : values) v = static_cast<float>(sigma * random.Normal());
  return values;
}
// Magnitudes spread evenly over the exponents of `format` and a little beyond both ends.
inline Values Spread(const NumberFormat& format, std::size_t n, std::uint64_t seed) {
  RandomStream random(seed, StreamId("spread"));
  const double low = std::log2(format.smallest_subnormal()) - 3,
               high = std::log2(format.largest()) + 2;
  Values values(n);
  for (float& v : values) {
    const double magnitude = std::exp2(low + (high - low) * static_cast<double>(random.Uniform()));
    v = static_cast<float>(random.NextU32() % 2 ? magnitude : -magnitude);
  }
  return values;
}

// Each value of `format` (of fp32: of bf16; of large formats a sample), each midpoint to the next
// and the fp32 values on both sides of it; zeros, the ends of fp32, infinities, NaNs; both signs.
inline Values Boundaries(const NumberFormat& format) {
  const NumberFormat& grid =
      format.exponent_bits == 8 && format.mantissa_bits == 23 ? kBf16 : format;
  const unsigned codes = ada::test::PositiveCodes(grid), step = codes / 65536 + 1;
  const float inf = std::numeric_limits<float>::infinity();
  Values values = {0,
                   std::bit_cast<float>(1u),
                   std::numeric_limits<float>::min(),
                   inf,
                   std::bit_cast<float>(0x007fffffu),
                   std::numeric_limits<float>::max(),
                   std::numeric_limits<float>::quiet_NaN(),
                   std::bit_cast<float>(0x7f800001u)};  // a NaN by its last bit
  const auto add = [&](double at) {
    // After the largest value lies the one that a grid without end would have.
    const auto middle = static_cast<float>(at + ada::test::SpacingAt(grid, at) / 2);
    values.insert(values.end(),
                  {static_cast<float>(at), std::nextafter(static_cast<float>(at), inf),
                   std::nextafter(middle, 0.0f), middle, std::nextafter(middle, inf)});
  };
  for (unsigned code = 0; code < codes; code += step)
    add(ada::test::DecodeIndependently(grid, code));
  add(ada::test::LargestIndependently(grid));
  const std::size_t positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

// `n` values of one storage in memory, with a guard after the last.
class Memory {
 public:
  Memory(Storage storage, std::size_t n)
      : storage_(storage), n_(n), bytes_((n + kGuard) * BytesOf(storage), kFill) {}
  Memory(Storage storage, const Values& values) : Memory(storage, values.size()) { Set(values); }

  // Values are to lie on the storage's grid; others are rounded to it.
  void Set(const Values& values) {
    for (std::size_t i = 0; i < n_; ++i) {
      std::byte* to = bytes_.data() + i * BytesOf(storage_);
      const std::uint16_t code =
          storage_ == Storage::kBF16 ? EncodeBf16(values[i]) : EncodeFp16(values[i]);
      if (storage_ == Storage::kF32)
        std::memcpy(to, &values[i], 4);
      else
        std::memcpy(to, &code, 2);
    }
  }
  Values Get() const {
    Values values(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      const std::byte* from = bytes_.data() + i * BytesOf(storage_);
      std::uint16_t code;
      std::memcpy(&code, from, 2);
      if (storage_ == Storage::kF32)
        std::memcpy(&values[i], from, 4);
      else
        values[i] = storage_ == Storage::kBF16 ? DecodeBf16(code) : DecodeFp16(code);
    }
    return values;
  }
  bool guard_intact() const {
    for (std::size_t i = n_ * BytesOf(storage_); i < bytes_.size(); ++i)
      if (bytes_[i] != kFill) return false;
    return true;
  }
  cpu::TensorSpan piece() { return {bytes_.data(), storage_}; }

 private:
  static constexpr std::size_t kGuard = 40;
  static constexpr std::byte kFill{0x5a};
  Storage storage_;
  std::size_t n_;
  std::vector<std::byte> bytes_;
};

// Index of the first value that differs (bits, or one NaN only); -1: all agree.
inline std::int64_t FirstDifference(const Values& a, const Values& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!ada::test::Same(a[i], b[i])) return static_cast<std::int64_t>(i);
  return -1;
}

}  // namespace ada::backend::test
