// What the kernels that look for sums of few products are called with; see plan/few_terms.h.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

inline constexpr int kTaps = 9, kTapRows = 3;

inline constexpr int kEnoughTerms = 8;

// mark_nonzero: sets the bits of the values of some neighboring pixels that are not zero.
struct MarkNonzeroArgs {
  TensorSpan pixels;  // [count][channels]
  int count = 0, channels = 0;
  int position = 0;               // the first pixel's bit
  std::uint64_t* bits = nullptr;  // [words][room]
  int room = 0;                   // channels, rounded up to 16
};

// find_few_terms: for a block of 16 output channels and each input channel and tap, which of the
// outputs meet fewer than kEnoughTerms common bits in every single word.
struct FindFewTermsArgs {
  const std::uint64_t* x[kTapRows] = {};  // [words + 1][in_room]
  const std::uint64_t* dy = nullptr;      // [words][out_room], from the block's first channel on
  int words = 0, in_channels = 0, in_room = 0, out_room = 0;
  std::uint16_t* few = nullptr;  // [in][tap]: a bit an output
};

}  // namespace ada::backend::cpu
