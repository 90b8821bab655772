// Rounding under scales of blocks; see block_kernels.h. Sixteen blocks have their scales computed
// side by side: those of sixteen lines where neighbors in memory are of different lines
// (block_lanes.h), else those of sixteen blocks that follow each other (block_lines.h). And the
// transform of operands.
#include "backend/cpu/kernels/block_lanes.h"
#include "backend/cpu/kernels/block_lines.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

TensorSpan SpanOf(const float* values) { return {const_cast<float*>(values), Storage::kF32}; }

// stride 1: values of a line are neighbors in memory. Else matrices are: one of the two is 1
// (BlockArgs::layout).
template <class To, bool kStochastic, bool kDivides>
void QuantizeAs(const BlockArgs& args, const BlockRules& rules) {
  ForStorage(args.from.storage, [&](auto mode) {
    if (args.layout.stride == 1)
      QuantizeLines<decltype(mode), To, kStochastic, kDivides>(args, rules);
    else
      QuantizeLanes<decltype(mode), To, kStochastic, kDivides>(args, rules);
  });
}

void Quantize(const BlockArgs& args) {
  const BlockRules rules = RulesOf(args.format, args.bf16_input);
  if (rules.grid.divides)  // by fp32 numbers, of which bf16 holds few
    args.stochastic ? QuantizeAs<ModeF32, true, true>(args, rules)
                    : QuantizeAs<ModeF32, false, true>(args, rules);
  else if (args.to.storage == Storage::kBF16)
    args.stochastic ? QuantizeAs<ModeBF16, true, false>(args, rules)
                    : QuantizeAs<ModeBF16, false, false>(args, rules);
  else
    args.stochastic ? QuantizeAs<ModeF32, true, false>(args, rules)
                    : QuantizeAs<ModeF32, false, false>(args, rules);
}

// Bits travel as fp32 lanes, which loads and stores copy as they are.
void LargestEach(const float* x, std::uint32_t* largest, std::int64_t n) {
  const TensorSpan from = SpanOf(x), to = SpanOf(reinterpret_cast<const float*>(largest));
  ForValues(
      n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        const U u = Magnitude(LoadAt<ModeF32, kTail>(from, i, lanes));
        const U before = Bits(LoadAt<ModeF32, kTail>(to, i, lanes));
        StoreAt<ModeF32, kTail>(to, i, lanes, Float(Select((I)u > (I)before, u, before)));
      });
}

// A butterfly over kSize rows, all of them in registers where there are 16; the factor keeps the
// length of a column.
template <class From, class To, int kSize>
void HadamardOf(const float* signs, const TensorSpan& from, const TensorSpan& to, std::int64_t step,
                std::int64_t lanes, const NumberFormat& format) {
  const bool rounds = !(format == kFp32);
  const Grid grid(format);
  ForValues(
      lanes, [&](std::int64_t at, int count, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        F rows[kSize];
        for (int i = 0; i < kSize; ++i)
          rows[i] = LoadAt<From, kTail>(from, at + i * step, count) * signs[i];
#pragma GCC unroll 4
        for (int half = 1; half < kSize; half *= 2)
#pragma GCC unroll 16
          for (int i = 0; i < kSize; ++i) {
            if ((i & half) != 0) continue;
            const F sum = rows[i] + rows[i + half], difference = rows[i] - rows[i + half];
            rows[i] = sum, rows[i + half] = difference;
          }
        for (int i = 0; i < kSize; ++i) {
          const F v = rows[i] * HadamardFactor(kSize);
          StoreAt<To, kTail>(to, at + i * step, count, rounds ? RoundToGrid(v, grid) : v);
        }
      });
}

void Hadamard(const std::vector<float>& signs, const TensorSpan& from, const TensorSpan& to,
              std::int64_t step, std::int64_t lanes, const NumberFormat& format) {
  const auto as = [&](auto from_mode, auto to_mode) {
    using From = decltype(from_mode);
    using To = decltype(to_mode);
    const float* const s = signs.data();
    switch (signs.size()) {
      case 16:
        return HadamardOf<From, To, 16>(s, from, to, step, lanes, format);
      case 32:
        return HadamardOf<From, To, 32>(s, from, to, step, lanes, format);
      case 64:
        return HadamardOf<From, To, 64>(s, from, to, step, lanes, format);
      default:
        return HadamardOf<From, To, 128>(s, from, to, step, lanes, format);
    }
  };
  ForStorage(from.storage, [&](auto mode) {
    to.storage == Storage::kBF16 ? as(mode, ModeBF16{}) : as(mode, ModeF32{});
  });
}

}  // namespace

const BlockKernels kBlockTable = {Quantize, LargestEach, Hadamard};

}  // namespace ada::backend::cpu::ADA_ISA
