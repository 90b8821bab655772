// Rounding under scales of blocks; see block_kernels.h.
#include "backend/cpu/block_kernels.h"
#include "backend/cpu/kernels/flat.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

TensorSpan SpanOf(const float* values) { return {const_cast<float*>(values), Storage::kF32}; }

template <bool kStochastic, bool kDivides>
void RoundAll(const BlockRoundArgs& args) {
  const Grid grid(args.element);
  const TensorSpan x = SpanOf(args.x), encode = SpanOf(args.encode), decode = SpanOf(args.decode);
  ForValues(
      args.n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        const F factor = LoadAt<ModeF32, kTail>(decode, i, lanes);
        const F value = LoadAt<ModeF32, kTail>(x, i, lanes);
        const F scaled =
            kDivides ? value / factor : value * LoadAt<ModeF32, kTail>(encode, i, lanes);
        F r;
        if constexpr (kStochastic)
          r = RoundStochasticallyToGrid(
              scaled, RandomWords(args.key, args.draw, args.first + static_cast<std::uint64_t>(i)),
              grid);
        else
          r = RoundToGrid(scaled, grid);
        if (args.plain_zeros) r = Select((scaled < F{}) | (scaled > F{}), r, F{});
        if (args.nan_is_zero) r = Select(scaled == scaled, r, F{});
        const F product = r * factor;
        StoreAt<ModeF32, kTail>(x, i, lanes, kDivides ? product + F{} : product);
      });
}

void RoundBlocks(const BlockRoundArgs& args) {
  if (args.divides)
    args.stochastic ? RoundAll<true, true>(args) : RoundAll<false, true>(args);
  else
    args.stochastic ? RoundAll<true, false>(args) : RoundAll<false, false>(args);
}

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

}  // namespace

const BlockKernels kBlockTable = {RoundBlocks, LargestEach};

}  // namespace ada::backend::cpu::ADA_ISA
