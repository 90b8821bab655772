// See weight_gradient_pack.h: which pairs a step packs, and where they lie.
#include "backend/cpu/matmul/kernels/amx/weight_gradient_pack.h"

#include <algorithm>
#include <bit>

namespace ada::backend::cpu::ADA_ISA {
namespace {

ADA_INLINE void Clear(std::byte* to, std::size_t bytes) {  // whole lines
  for (std::size_t i = 0; i < bytes; i += 64)
    _mm512_store_si512(reinterpret_cast<__m512i*>(to + i), _mm512_setzero_si512());
}
ADA_INLINE std::size_t Size(int n) { return static_cast<std::size_t>(n); }
ADA_INLINE std::ptrdiff_t BytesEach(const TensorSpan& span) {
  return static_cast<std::ptrdiff_t>(BytesOf(span.storage));
}

using RunFunction = void (*)(const PairRun&);
using BlockFunction = void (*)(PairBlock&, int);

template <Storage kStorage, bool kWhole>
RunFunction RunOf(bool two, bool one_pair) {
  if (two)
    return one_pair ? PackRun<kStorage, true, kWhole, true>
                    : PackRun<kStorage, true, kWhole, false>;
  return one_pair ? PackRun<kStorage, false, kWhole, true>
                  : PackRun<kStorage, false, kWhole, false>;
}
template <bool kWhole>
RunFunction RunFor(Storage storage, bool two, bool one_pair) {
  if (storage == Storage::kF16) return RunOf<Storage::kF16, kWhole>(two, one_pair);
  if (storage == Storage::kBF16) return RunOf<Storage::kBF16, kWhole>(two, one_pair);
  return RunOf<Storage::kF32, kWhole>(two, one_pair);
}
BlockFunction BlockFor(Storage storage, bool two) {
  if (storage == Storage::kF16)
    return two ? PackBlock<Storage::kF16, true> : PackBlock<Storage::kF16, false>;
  if (storage == Storage::kBF16)
    return two ? PackBlock<Storage::kBF16, true> : PackBlock<Storage::kBF16, false>;
  return two ? PackBlockF32<true> : PackBlockF32<false>;
}

}  // namespace

GradientPacking::GradientPacking(const WeightGradientArgs& args)
    : args_(args),
      shape_(*args.shape),
      plan_(*args.plan),
      rows_of_set_((shape_.out_h - 1) * shape_.stride_h +
                   (shape_.kernel_h - 1) * shape_.dilation_h + 1),
      outs_((shape_.out_c + 15) / 16) {
  for (int p = 0; p < args.plane_count; ++p)
    row_steps_ += (args.planes[p].count * plan_.pairs + kPixels - 1) / kPixels;
  run_.first = x_first_, run_.second = x_second_;
  run_.step = shape_.stride_w * shape_.c * BytesEach(args.x);
  run_.shift = std::countr_zero(static_cast<unsigned>(plan_.pairs));
  run_.low = plan_.plane_bytes;
  pack_whole_ = RunFor<true>(args.x.storage, shape_.x_parts == 2, plan_.pairs == 1);
  pack_lanes_ = RunFor<false>(args.x.storage, shape_.x_parts == 2, plan_.pairs == 1);
  pack_block_ = BlockFor(args.dy.storage, shape_.dy_parts == 2);
  ClearPadding();
  SetOffsets(Table(0), std::min(args_.images, 2 * plan_.pairs));
  SetOffsets(Table(1), args_.images - (plan_.sets - 1) * 2 * plan_.pairs);
}

// Padding of planes is never written again: it is cleared once a call.
void GradientPacking::ClearPadding() {
  std::byte* const scratch = args_.scratch;
  const std::size_t pixel = Size(plan_.pairs) * 64, parts = Size(shape_.x_parts);
  Clear(scratch + plan_.zeros, plan_.offsets - plan_.zeros);  // and lines
  for (int row = 0; row < plan_.ring; ++row)
    for (int plane = 0; plane < args_.plane_count; ++plane)
      for (std::size_t part = 0; part < parts; ++part) {
        const GradientPlane& p = args_.planes[plane];
        std::byte* to = scratch + Size(row) * plan_.row_bytes +
                        (Size(plane) * parts + part) * plan_.plane_bytes;
        const int end = p.first + p.count;
        Clear(to, Size(std::min(p.first, plan_.pixels)) * pixel);
        Clear(to + Size(end) * pixel, Size(plan_.pixels - end) * pixel);
      }
}

// Missing pixels stand at their row's last one, missing images at the last image; their pairs are
// marked as missing.
void GradientPacking::SetOffsets(GradientOffsets* table, int images) {
  const std::ptrdiff_t pixel_bytes = shape_.out_c * BytesEach(args_.dy);
  const std::ptrdiff_t image_bytes = pixel_bytes * shape_.out_h * shape_.out_w;
  for (int block = 0; block < plan_.blocks; ++block)
    for (int k = 0; k < 16; ++k) {
      const int position = 16 * block + k, pair = position % plan_.pairs;
      const int pixel = position / plan_.pairs, last = images - 1;
      GradientOffsets& offsets = table[block];
      const std::ptrdiff_t start = pixel_bytes * std::min(pixel, shape_.out_w - 1);
      offsets.first[k] = start + image_bytes * std::min(2 * pair, last);
      offsets.second[k] = start + image_bytes * std::min(2 * pair + 1, last);
      const unsigned bit = pixel < shape_.out_w ? 1u << k : 0u;
      if (k == 0) offsets.has_first = offsets.has_second = 0;
      if (2 * pair <= last) offsets.has_first |= static_cast<std::uint16_t>(bit);
      if (2 * pair + 1 <= last) offsets.has_second |= static_cast<std::uint16_t>(bit);
    }
}

GradientOffsets* GradientPacking::Table(int which) const {
  return reinterpret_cast<GradientOffsets*>(args_.scratch + plan_.offsets) + which * plan_.blocks;
}

// Rows of x by number, from the padding above the first set's on.
const std::byte* GradientPacking::RowOfX(int row, int kernel_row) const {
  const int in_set = row % shape_.out_h * shape_.stride_h + kernel_row * shape_.dilation_h;
  const int y = in_set - shape_.padding_h;
  if (y < 0 || y >= shape_.h) return nullptr;
  const int number = row / shape_.out_h * rows_of_set_ + in_set;
  return args_.scratch + Size(number % plan_.ring) * plan_.row_bytes;
}

// Whether any row of dy reads this row of x.
bool GradientPacking::Reads(int number) const {
  const int in_set = number % rows_of_set_, y = in_set - shape_.padding_h;
  if (y < 0 || y >= shape_.h) return false;
  for (int k = 0; k < shape_.kernel_h; ++k) {
    const int row = in_set - k * shape_.dilation_h;
    if (row >= 0 && row % shape_.stride_h == 0 && row / shape_.stride_h < shape_.out_h) return true;
  }
  return false;
}

void GradientPacking::Begin(int first, int end) {
  const int last = end - 1;
  x_end_ = last / shape_.out_h * rows_of_set_ + last % shape_.out_h * shape_.stride_h +
           (shape_.kernel_h - 1) * shape_.dilation_h + 1;
  int rows = 0;
  for (int number = x_row_; number < x_end_; ++number) rows += Reads(number) ? 1 : 0;
  left_ = rows * row_steps_ + (end - first) * plan_.blocks * outs_ * kParts;
  NextRow();
  dy_row_ = first, dy_block_ = dy_out_ = dy_part_ = 0;
  std::byte* const strips = args_.scratch + plan_.dy;
  dy_strip_ = dy_strip_ == strips ? strips + plan_.strip_bytes : strips;
  block_.out = dy_strip_;
}

void GradientPacking::Step() {
  --left_;
  x_row_ < x_end_ ? StepX() : StepDy();
}

// --- x -------------------------------------------------------------------------------------------

// From x_row_ on, the next row that is read.
void GradientPacking::NextRow() {
  while (x_row_ < x_end_ && (row_steps_ == 0 || !Reads(x_row_))) ++x_row_;
  x_plane_ = 0, x_left_ = 0;
}

// Row x_row_ of the set's image `image`; missing ones are the last there is, whose x is not harmed
// by dy's zeros.
const std::byte* GradientPacking::ImageRow(int image) const {
  const int set = x_row_ / rows_of_set_, y = x_row_ % rows_of_set_ - shape_.padding_h;
  const std::int64_t number = std::min(set * 2 * plan_.pairs + image, args_.images - 1);
  const std::int64_t value = (number * shape_.h + y) * shape_.w * shape_.c;
  return static_cast<const std::byte*>(args_.x.data) + value * BytesEach(args_.x);
}

void GradientPacking::BeginRow() {
  const std::ptrdiff_t margin = shape_.padding_w * shape_.c * BytesEach(args_.x);
  const std::ptrdiff_t bytes = shape_.w * shape_.c * BytesEach(args_.x);
  for (int image = 0; image < 2 * plan_.pairs; ++image) {
    const std::byte* row = ImageRow(image);
    if (shape_.gathered) {
      std::byte* line = args_.scratch + plan_.lines + Size(image) * plan_.line_bytes;
      std::memcpy(line + margin, row, static_cast<std::size_t>(bytes));
      row = line;
    }
    (image % 2 == 0 ? x_first_ : x_second_)[image / 2] = row;
  }
}

void GradientPacking::BeginPlane() {
  while (args_.planes[x_plane_].count == 0) ++x_plane_;
  const GradientPlane& plane = args_.planes[x_plane_];
  run_.source = plane.source * BytesEach(args_.x);
  run_.lanes = Lanes(plane.lanes);
  run_.packed_pixel = 0;
  run_.out = args_.scratch + Size(x_row_ % plan_.ring) * plan_.row_bytes +
             Size(x_plane_ * shape_.x_parts) * plan_.plane_bytes +
             Size(plane.first * plan_.pairs) * 64;
  x_left_ = plane.count * plan_.pairs;
}

// Up to eight packed pixels of one plane; after the last of a row the next row that is read.
void GradientPacking::StepX() {
  if (x_left_ == 0) {
    if (x_plane_ == 0) BeginRow();
    BeginPlane();
  }
  run_.count = std::min(kPixels, x_left_);
  (run_.lanes == 0xffff ? pack_whole_ : pack_lanes_)(run_);
  run_.packed_pixel += run_.count, run_.out += 64 * run_.count;
  x_left_ -= run_.count;
  if (x_left_ > 0) return;
  ++x_plane_;
  while (x_plane_ < args_.plane_count && args_.planes[x_plane_].count == 0) ++x_plane_;
  if (x_plane_ < args_.plane_count) return;
  ++x_row_;
  NextRow();
}

// --- dy ------------------------------------------------------------------------------------------

void GradientPacking::BeginBlock() {
  const int set = dy_row_ / shape_.out_h, y = dy_row_ % shape_.out_h;
  const std::int64_t image = std::int64_t{set} * 2 * plan_.pairs;
  const std::int64_t value =
      (image * shape_.out_h + y) * shape_.out_w * shape_.out_c + 16 * dy_out_;
  block_.row = static_cast<const std::byte*>(args_.dy.data) + value * BytesEach(args_.dy);
  block_.offsets = Table(set == plan_.sets - 1 ? 1 : 0) + dy_block_;
  block_.lanes = Lanes(shape_.out_c - 16 * dy_out_);
}

// A block of 16 pairs takes four steps.
void GradientPacking::StepDy() {
  if (dy_part_ == 0) BeginBlock();
  pack_block_(block_, dy_part_);
  if (++dy_part_ < kParts) return;
  dy_part_ = 0;
  block_.out += shape_.dy_parts * 1024;
  if (++dy_out_ < outs_) return;
  dy_out_ = 0;
  if (++dy_block_ < plan_.blocks) return;
  dy_block_ = 0, ++dy_row_;
}

}  // namespace ada::backend::cpu::ADA_ISA
