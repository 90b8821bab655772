// Sums of products as tensor cores make them: how many products enter one addition, how many bits
// are kept below the largest of them, and what the sum is kept in. Plain data with the names of
// known units; the arithmetic itself is accumulator_inline.h's.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "number/number_format.h"

namespace ada::scaling {

// How the exact sum of a group is brought into the accumulator.
enum class AccumulatorRounding : std::uint8_t { kTruncate, kNearest };

// `group` consecutive products and the accumulator are aligned to the largest exponent E among
// them, cut toward zero to multiples of 2^(E - fraction_bits), summed exactly, and brought into
// `format`. After every `promote` products the accumulator is added to an fp32 sum and starts again
// from zero.
struct Accumulator {
  static constexpr int kExact = -1;  // of fraction_bits: nothing is cut before the sum
  int group = 1;
  int fraction_bits = kExact;
  NumberFormat format = kFp32;
  AccumulatorRounding rounding = AccumulatorRounding::kTruncate;
  int promote = 0;  // products; 0: never
  bool cuts() const { return fraction_bits != kExact; }
  friend bool operator==(const Accumulator&, const Accumulator&) = default;
};
// Bounds within which every sum of a group is exact in a double.
inline constexpr int kMostOfGroup = 512, kMostFractionBits = 40;

// The matmuls of a layer whose sums may have an accumulator each: y = x w, dx = dy w, dw = x dy; of
// attention the two of its forward pass and the four of its backward pass (kDx).
enum class LayerMatmul : std::uint8_t { kForward, kDx, kDw };
inline constexpr std::size_t kLayerMatmuls = 3;
inline constexpr std::array<const char*, kLayerMatmuls> kLayerMatmulNames = {"forward", "dx", "dw"};
constexpr std::size_t IndexOf(LayerMatmul matmul) { return static_cast<std::size_t>(matmul); }
constexpr const char* NameOf(LayerMatmul matmul) { return kLayerMatmulNames[IndexOf(matmul)]; }
// By LayerMatmul; unset: fp32 sums.
using Accumulators = std::array<std::optional<Accumulator>, kLayerMatmuls>;
inline bool AnyAccumulates(const Accumulators& of) { return of[0] || of[1] || of[2]; }

// A known unit.
struct NamedAccumulator {
  std::string_view name;
  Accumulator rule;
  std::string_view hardware;  // which units sum so, with which operands
  std::string_view source;    // who measured or published it
};
// In the order in which `ada-train accumulators` lists them.
const std::vector<NamedAccumulator>& NamedAccumulators();
// Null: there is none of this name.
const Accumulator* AccumulatorNamed(std::string_view name);

// The name where there is one, else the map of the YAML.
std::string AccumulatorText(const Accumulator& rule);
// "fp32", or "e8m13" for a format without a name.
std::string AccumulatorFormatText(const NumberFormat& format);

// Why a rule cannot be computed, or "". The text names the key: "promote is 100: ...".
std::string RefuseAccumulator(const Accumulator& rule);

// What sums of one kind lost, counted against sums of the same products in double that are rounded
// to fp32 once. Sums that are not finite on either side enter `overflow` alone.
struct AccumulatorCounts {
  std::int64_t sums = 0;
  std::int64_t products = 0;       // other than zero
  std::int64_t swallowed = 0;      // of these: cut to zero by the alignment
  std::int64_t lost = 0;           // sums other than zero that became zero
  std::int64_t overflow = 0;       // finite sums that became inf or NaN
  double signal = 0, noise = 0;    // sums of squares: of exact sums, of errors
  double pull = 0, magnitude = 0;  // errors in the direction of the sum; magnitudes of sums
  double max_rel = 0;              // largest |error| / sum of the products' magnitudes
  void Add(const AccumulatorCounts& more);
  // One sum: as it came out, in double, and the sum of its products' magnitudes.
  void Take(float got, double exact, double magnitudes);
  double swallowed_pct() const;  // 0 where no product is other than zero
  // 10 log10(signal / noise); inf without noise, NaN without signal.
  double sqnr_db() const;
  double bias() const;  // pull / magnitude; 0 where all sums are zero
};

}  // namespace ada::scaling
