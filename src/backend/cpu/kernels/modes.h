// Modes: how kernels load, round and store. All spans of a call in one storage with rounding of
// its own, or anything.
#pragma once
#include <initializer_list>

#include "backend/cpu/kernels/grid.h"

namespace ada::backend::cpu::ADA_ISA {

// kRounding: how the mode rounds. kExact: not at all; kCodes: Nearest and its code, Encode;
// kAnyWay: by RoundAnyWay. kKeepsSigns: numbers keep their signs, NaNs stay, so that the relu may
// come before the rounding.
enum class ModeRounding : std::uint8_t { kExact, kCodes, kAnyWay };
// fp32 in and out. Values are exact: nothing is rounded.
struct ModeF32 {
  static constexpr bool kWide = true;  // values may leave the range in which fp32 squares are safe
  static constexpr ModeRounding kRounding = ModeRounding::kExact;
  static constexpr bool kNeedsGrid = false, kKeepsSigns = true;
  static ADA_INLINE F Load(const TensorSpan& p, std::int64_t i) {
    return LoadF(static_cast<const float*>(p.data) + i);
  }
  static ADA_INLINE_WIDE F LoadFirst(const TensorSpan& p, std::int64_t i, int n) {
    return LoadFirstF(static_cast<const float*>(p.data) + i, n);
  }
  static ADA_INLINE void Store(const TensorSpan& p, std::int64_t i, F v) {
    StoreF(static_cast<float*>(p.data) + i, v);
  }
  static ADA_INLINE_WIDE void StoreFirst(const TensorSpan& p, std::int64_t i, int n, F v) {
    StoreFirstF(static_cast<float*>(p.data) + i, n, v);
  }
  static ADA_INLINE F MaskInPlace(const TensorSpan& p, const TensorSpan& mask, std::int64_t i) {
    const F v = Load(p, i), masked = Select(Load(mask, i) > F{}, v, F{});
    Store(p, i, masked);
    return masked;
  }
};
// kCode: the code of a value that lies on the grid; kInfinity: of infinity.
// 16-bit codes in and out, rounded to nearest by the conversion itself.
template <F (*kFrom)(H), H (*kTo)(F), H (*kCode)(F), std::int16_t kInfinity, bool kWideRange>
struct ModeHalf {
  static constexpr bool kWide = kWideRange, kNeedsGrid = false, kKeepsSigns = true;
  static constexpr ModeRounding kRounding = ModeRounding::kCodes;
  static ADA_INLINE F Load(const TensorSpan& p, std::int64_t i) {
    return kFrom(LoadH(static_cast<const std::uint16_t*>(p.data) + i));
  }
  static ADA_INLINE_WIDE F LoadFirst(const TensorSpan& p, std::int64_t i, int n) {
    return kFrom(LoadFirstH(static_cast<const std::uint16_t*>(p.data) + i, n));
  }
  static ADA_INLINE H Encode(F x, const Grid&) { return kTo(x); }
  static ADA_INLINE F Decode(H code) { return kFrom(code); }
  static ADA_INLINE F Nearest(F x, const Grid&) { return kFrom(kTo(x)); }
  static ADA_INLINE void StoreCode(const TensorSpan& p, std::int64_t i, H code) {
    StoreH(static_cast<std::uint16_t*>(p.data) + i, code);
  }
  // For a value that is rounded already, or was read from memory of this kind.
  static ADA_INLINE void Store(const TensorSpan& p, std::int64_t i, F v) {
    StoreH(static_cast<std::uint16_t*>(p.data) + i, kCode(v));
  }
  static ADA_INLINE_WIDE void StoreFirst(const TensorSpan& p, std::int64_t i, int n, F v) {
    StoreFirstH(static_cast<std::uint16_t*>(p.data) + i, n, kTo(v));
  }
  // Zeros the values of p where those of `mask` are not positive, and returns the result.
  static ADA_INLINE F MaskInPlace(const TensorSpan& p, const TensorSpan& mask, std::int64_t i) {
    auto* at = static_cast<std::uint16_t*>(p.data) + i;
    const H code =
        KeepPositive(LoadH(at), LoadH(static_cast<const std::uint16_t*>(mask.data) + i), kInfinity);
    StoreH(at, code);
    return kFrom(code);
  }
};
using ModeF16 = ModeHalf<FromFp16, ToFp16, ToFp16, 0x7c00, false>;
using ModeBF16 = ModeHalf<FromBf16, ToBf16, CodeOfBf16, 0x7f80, true>;
// Small formats in memory that holds fp16: fp8 and the like, or fp16 that saturates.
// Every value of such a format is one of fp16, so that its code there holds it exactly.
struct ModeSmall : ModeF16 {
  static constexpr bool kNeedsGrid = true, kKeepsSigns = false;
  static ADA_INLINE F Nearest(F x, const Grid& grid) { return RoundToGrid(x, grid); }
  static ADA_INLINE H Encode(F x, const Grid& grid) { return ToFp16(RoundToGrid(x, grid)); }
};
// A 16-bit format's values in fp32: weights as they are multiplied. Sums are as of all fp32 memory.
// Rounding is that of the half format, memory that of fp32.
template <class Half>
struct ModeWidened : Half {
  static constexpr bool kWide = true;
  static ADA_INLINE void StoreCode(const TensorSpan& p, std::int64_t i, H code) {
    ModeF32::Store(p, i, Half::Decode(code));
  }
  static ADA_INLINE_WIDE void StoreFirst(const TensorSpan& p, std::int64_t i, int n, F v) {
    ModeF32::StoreFirst(p, i, n, v);
  }
};
// Any mixture of storages, with scales and stochastic rounding: decides at each vector, and so is
// slow. Everything that has no mode of its own runs here.
struct ModeAny {
  static constexpr bool kWide = true, kNeedsGrid = true, kKeepsSigns = false;
  static constexpr ModeRounding kRounding = ModeRounding::kAnyWay;
  static ADA_INLINE_WIDE F Load(const TensorSpan& p, std::int64_t i) {
    switch (p.storage) {
      case Storage::kF16:
        return ModeF16::Load(p, i);
      case Storage::kBF16:
        return ModeBF16::Load(p, i);
      default:
        return ModeF32::Load(p, i);
    }
  }
  static ADA_OUTLINE F LoadFirst(const TensorSpan& p, std::int64_t i, int n) {
    switch (p.storage) {
      case Storage::kF16:
        return ModeF16::LoadFirst(p, i, n);
      case Storage::kBF16:
        return ModeBF16::LoadFirst(p, i, n);
      default:
        return ModeF32::LoadFirst(p, i, n);
    }
  }
  static ADA_INLINE_WIDE void Store(const TensorSpan& p, std::int64_t i, F v) {
    switch (p.storage) {
      case Storage::kF16:
        return ModeF16::Store(p, i, v);
      case Storage::kBF16:
        return ModeBF16::StoreCode(p, i, ToBf16(v));  // whatever NaN it is
      default:
        return ModeF32::Store(p, i, v);
    }
  }
  static ADA_OUTLINE void StoreFirst(const TensorSpan& p, std::int64_t i, int n, F v) {
    switch (p.storage) {
      case Storage::kF16:
        return ModeF16::StoreFirst(p, i, n, v);
      case Storage::kBF16:
        return ModeBF16::StoreFirst(p, i, n, v);
      default:
        return ModeF32::StoreFirst(p, i, n, v);
    }
  }
  static ADA_INLINE_WIDE F MaskInPlace(const TensorSpan& p, const TensorSpan& mask,
                                       std::int64_t i) {
    const F v = Load(p, i), masked = Select(Load(mask, i) > F{}, v, F{});
    Store(p, i, masked);
    return masked;
  }
};

// body(Mode) for the storage of values that are read or stored as their codes.
template <class Body>
ADA_INLINE void ForStorage(Storage storage, Body&& body) {
  switch (storage) {
    case Storage::kF16:
      return body(ModeF16{});
    case Storage::kBF16:
      return body(ModeBF16{});
    default:
      return body(ModeF32{});
  }
}

enum class ModeName : std::uint8_t { kF32, kF16, kBF16, kSmall, kAny };
// The fastest mode for spans that are rounded like this; without roundings: moved as they are.
// Null spans are left out: an addend that is not there.
ADA_OUTLINE ModeName ChooseMode(const TensorSpan* spans, std::size_t count,
                                const Rounding* const* roundings, std::size_t rounding_count) {
  const Storage storage = spans[0].storage;
  for (std::size_t k = 0; k < count; ++k)
    if (spans[k].data != nullptr && spans[k].storage != storage) return ModeName::kAny;
  const NumberFormat& own = FormatOf(storage);
  bool plain = true, small = storage == Storage::kF16;
  for (std::size_t k = 0; k < rounding_count; ++k) {
    const Rounding& r = *roundings[k];
    if (r.stochastic || r.scale != 1) return ModeName::kAny;
    plain = plain && r.format == own;
    small = small && !NeedsIntegers(r.format);
  }
  if (!plain) return small ? ModeName::kSmall : ModeName::kAny;
  return storage == Storage::kF32   ? ModeName::kF32
         : storage == Storage::kF16 ? ModeName::kF16
                                    : ModeName::kBF16;
}

// Calls f(Mode) with the mode that fits spans which are rounded as `roundings` say.
template <class Call>
void Dispatch(std::initializer_list<TensorSpan> spans,
              std::initializer_list<const Rounding*> roundings, Call&& f) {
  switch (ChooseMode(spans.begin(), spans.size(), roundings.begin(), roundings.size())) {
    case ModeName::kF32:
      return f(ModeF32{});
    case ModeName::kF16:
      return f(ModeF16{});
    case ModeName::kBF16:
      return f(ModeBF16{});
    case ModeName::kSmall:
      return f(ModeSmall{});
    default:
      return f(ModeAny{});
  }
}
// The same for spans that are not rounded.
template <class Call>
void Dispatch(std::initializer_list<TensorSpan> spans, Call&& f) {
  switch (ChooseMode(spans.begin(), spans.size(), nullptr, 0)) {
    case ModeName::kF32:
      return f(ModeF32{});
    case ModeName::kF16:
      return f(ModeF16{});
    case ModeName::kBF16:
      return f(ModeBF16{});
    default:
      return f(ModeAny{});
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
