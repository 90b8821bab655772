// See few_terms.h.
#include "backend/cpu/matmul/plan/few_terms.h"

#include <algorithm>
#include <bit>

#include "backend/cpu/matmul/plan/winograd.h"

namespace ada::backend::cpu {
namespace {

// Bits of a slab at least: of the first one, which decides for dense layers, and of the others.
constexpr int kFirstBits = 256, kMoreBits = 4096;
// If more than one in this many values is left after the first slab, direct sums take less time
// than following all of them.
constexpr std::size_t kMostShare = 8;

float ValueOf(const Kernels& kernels, const TensorSpan& values, std::int64_t i) {
  float value = 0;
  kernels.widen(Advance(values, i), &value, 1);
  return value;
}
// The 64 bits that begin `shift` bits after a word's start; the next word is `room` words on.
std::uint64_t Shifted(const std::uint64_t* word, int room, int shift) {
  return shift == 0 ? *word : *word >> shift | word[room] << (64 - shift);
}

}  // namespace

FewTerms::FewTerms(const Context& context, const WinogradKernels& kernels,
                   const MatmulGeometry& geometry)
    : context_(context),
      kernels_(kernels),
      geometry_(geometry),
      sums_(static_cast<std::size_t>(QuotientUp(geometry.y.c, 16))) {}

void FewTerms::Begin(const float* dw) {
  dw_ = dw;
  first_ = true, too_many_ = false;
  for (auto& sums : sums_) sums.clear();
}

std::size_t FewTerms::Left() const {
  std::size_t left = 0;
  for (const auto& sums : sums_) left += sums.size();
  return left;
}

// Slab by slab. The first is small, since in a dense layer it settles nearly all weights.
bool FewTerms::Take(TensorSpan x, TensorSpan dy, std::int64_t images) {
  const std::int64_t end = images * geometry_.y.h;
  for (std::int64_t row = 0; row < end;) {
    Slab slab{x, dy, row};
    slab.rows = static_cast<int>(
        std::min<std::int64_t>(QuotientUp(first_ ? kFirstBits : kMoreBits, step()), end - row));
    slab.words = QuotientUp(std::int64_t{slab.rows} * step(), 64);
    Mark(slab);
    context_.pool.For(static_cast<std::int64_t>(sums_.size()), [&](std::int64_t i, int) {
      const auto block = static_cast<int>(i);
      if (first_) FindFew(block);
      Follow(slab, block);
    });
    first_ = false;
    row += slab.rows;
    const std::size_t left = Left();
    too_many_ = left > static_cast<std::size_t>(geometry_.w.numel()) / kMostShare;
    if (left == 0 || too_many_) return false;
  }
  return true;
}

// Pixel x of the input gets bit x + padding of its row: under column k of the kernel an output
// meets the bit that is k further on.
void FewTerms::Mark(const Slab& slab) {
  words_ = slab.words;
  const auto words = static_cast<std::size_t>(words_ + 1);
  for (auto& bits : x_) bits.assign(words * static_cast<std::size_t>(in_room()), 0);
  dy_.assign(words * static_cast<std::size_t>(out_room()), 0);
  const Shape &in = geometry_.x, &out = geometry_.y;
  MarkNonzeroArgs of_dy, of_x;
  of_dy.count = static_cast<int>(out.w), of_dy.channels = static_cast<int>(out.c);
  of_dy.bits = dy_.data(), of_dy.room = out_room();
  of_x.count = static_cast<int>(in.w), of_x.channels = static_cast<int>(in.c);
  of_x.room = in_room();
  for (int r = 0; r < slab.rows; ++r) {
    const std::int64_t row = slab.first + r, image = row / out.h, y = row % out.h;
    of_dy.pixels = Advance(slab.dy, row * out.w * out.c);
    of_dy.position = r * step();
    kernels_.mark_nonzero(of_dy);
    of_x.position = r * step() + geometry_.padding[1];
    for (int tap = 0; tap < kTapRows; ++tap) {
      const std::int64_t from = y + tap - geometry_.padding[0];
      if (from < 0 || from >= in.h) continue;
      of_x.pixels = Advance(slab.x, (image * in.h + from) * in.w * in.c);
      of_x.bits = x_[tap].data();
      kernels_.mark_nonzero(of_x);
    }
  }
}

// The weights of a block of 16 outputs that one slab leaves in doubt.
void FewTerms::FindFew(int block) {
  const auto ins = static_cast<int>(geometry_.x.c);
  std::vector<std::uint16_t> few(static_cast<std::size_t>(ins) * kTaps);
  FindFewTermsArgs a;
  for (int tap = 0; tap < kTapRows; ++tap) a.x[tap] = x_[tap].data();
  a.dy = dy_.data() + 16 * block;
  a.words = words_, a.in_channels = ins, a.in_room = in_room(), a.out_room = out_room();
  a.few = few.data();
  kernels_.find_few_terms(a);
  const int outs = std::min(16, static_cast<int>(geometry_.y.c) - 16 * block);
  auto& sums = sums_[static_cast<std::size_t>(block)];
  for (std::size_t i = 0; i < few.size(); ++i)
    for (unsigned left = few[i] & ((1u << outs) - 1); left != 0; left &= left - 1) {
      const Sum sum{static_cast<int>(i / kTaps), static_cast<std::uint8_t>(std::countr_zero(left)),
                    static_cast<std::uint8_t>(i % kTaps), 0, 0};
      if (dw_[Place(block, sum)] != 0) sums.push_back(sum);
    }
}

// Adds the terms of a slab to the sums that are left, and drops those that have enough.
void FewTerms::Follow(const Slab& slab, int block) {
  auto& sums = sums_[static_cast<std::size_t>(block)];
  for (int word = 0; word < words_ && !sums.empty(); ++word) {
    for (Sum& sum : sums) {
      const std::uint64_t dy =
          dy_[static_cast<std::size_t>(word * out_room() + 16 * block + sum.out)];
      if (dy == 0) continue;
      const auto& x = x_[sum.tap / kTapRows];
      const std::uint64_t* at = x.data() + std::int64_t{word} * in_room() + sum.in;
      AddTerms(slab, block, word, dy & Shifted(at, in_room(), sum.tap % kTapRows), sum);
    }
    std::erase_if(sums, [](const Sum& sum) { return sum.terms >= kEnoughTerms; });
  }
}

// common: the bits of a word at which both are not zero.
void FewTerms::AddTerms(const Slab& slab, int block, int word, std::uint64_t common,
                        Sum& sum) const {
  const Shape &in = geometry_.x, &out = geometry_.y;
  for (; common != 0 && sum.terms < kEnoughTerms; common &= common - 1, ++sum.terms) {
    const int position = 64 * word + std::countr_zero(common);
    const std::int64_t row = slab.first + position / step(), column = position % step();
    const std::int64_t y = row % out.h + sum.tap / kTapRows - geometry_.padding[0];
    const std::int64_t x = column + sum.tap % kTapRows - geometry_.padding[1];
    const std::int64_t from = ((row / out.h * in.h + y) * in.w + x) * in.c + sum.in;
    const std::int64_t at = (row * out.w + column) * out.c + 16 * block + sum.out;
    sum.value += static_cast<double>(ValueOf(context_.kernels, slab.x, from)) *
                 static_cast<double>(ValueOf(context_.kernels, slab.dy, at));
  }
}

std::int64_t FewTerms::Place(int block, const Sum& sum) const {
  return ((std::int64_t{16} * block + sum.out) * geometry_.x.c + sum.in) * kTaps + sum.tap;
}

void FewTerms::Store(float* dw) const {
  for (std::size_t block = 0; block < sums_.size(); ++block)
    for (const Sum& sum : sums_[block])
      dw[Place(static_cast<int>(block), sum)] = static_cast<float>(sum.value);
}

}  // namespace ada::backend::cpu
