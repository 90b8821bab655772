// Packing images into records of 16 fp32 values, and weights into tiles of 16 x 16 of them;
// tile_convolution.h draws the records.
#include <algorithm>

#include "backend/cpu/kernels/direct/sums.h"
#include "backend/cpu/products/tile_convolution.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kValues = 16;  // of a record

// Where rows of records lie, as numbers of values.
struct RecordRows {
  explicit RecordRows(const PackRecordsArgs& a)
      : step(std::int64_t{kValues} * a.frame.together),
        row(step * a.frame.columns),
        remainder(row * a.frame.rows),
        group(remainder * a.frame.remainders),
        plane(a.plane_bytes / 4) {}
  std::int64_t step, row, remainder, group, plane;
};

ADA_INLINE void ZeroRecords(const RecordRows& at, int blocks, float* to, std::int64_t records) {
  for (int block = 0; block < blocks; ++block)
    for (std::int64_t k = 0; k < records; ++k) StoreF(to + block * at.plane + k * at.step, F{});
}

// All channels of pixels first, first + stride, .. of a row, `count` of them.
template <class Mode>
ADA_INLINE void PackPixels(const PackRecordsArgs& a, const RecordRows& at, std::int64_t value,
                           std::int64_t count, float* to) {
  const std::int64_t channels = a.c, step = channels * a.frame.remainders;
  for (std::int64_t k = 0; k < count; ++k, value += step, to += at.step) {
    float* record = to;
    std::int64_t c = 0;
    for (; c + kValues <= channels; c += kValues, record += at.plane)
      StoreF(record, Mode::Load(a.x, value + c));
    if (c < channels)
      StoreF(record, Mode::LoadFirst(a.x, value + c, static_cast<int>(channels - c)));
  }
}

// A row of an image, to the frame of one remainder: columns left, left + 1, ..
template <class Mode>
ADA_INLINE void PackRow(const PackRecordsArgs& a, const RecordRows& at, std::int64_t row_value,
                        int remainder, float* to) {
  const int stride = a.frame.remainders, blocks = a.frame.blocks;
  // Column j of this frame is pixel j * stride + remainder - left of the image.
  const int offset = remainder - a.frame.left;
  const int begin = std::min(offset >= 0 ? 0 : (-offset + stride - 1) / stride, a.frame.columns);
  const int end = std::clamp((a.w - offset + stride - 1) / stride, begin, a.frame.columns);
  ZeroRecords(at, blocks, to, begin);
  PackPixels<Mode>(a, at, row_value + (std::int64_t{begin} * stride + offset) * a.c, end - begin,
                   to + begin * at.step);
  ZeroRecords(at, blocks, to + end * at.step, a.frame.columns - end);
}

// The window at column x of an image, as far as it lies within; all channels of a row's pixels lie
// together.
template <class Mode>
ADA_INLINE void PackWindow(const PackRecordsArgs& a, std::int64_t row_value, std::int64_t x,
                           float* to) {
  const int width = a.frame.window;
  if (x >= 0 && x + width <= a.w) {
    StoreF(to, Mode::LoadFirst(a.x, row_value + x * a.c, width * a.c));
    return;
  }
  StoreF(to, F{});
  const std::int64_t first = std::max<std::int64_t>(0, -x);
  const std::int64_t last = std::min<std::int64_t>(width, a.w - x);
  if (last <= first) return;
  const auto values = static_cast<int>((last - first) * a.c);
  StoreFirstF(to + first * a.c, values,
              Mode::LoadFirst(a.x, row_value + (x + first) * a.c, values));
}
template <class Mode>
ADA_INLINE void PackWindows(const PackRecordsArgs& a, const RecordRows& at, std::int64_t row_value,
                            float* to) {
  for (int column = 0; column < a.frame.columns; ++column)
    PackWindow<Mode>(a, row_value, std::int64_t{column} * a.frame.window_step - a.frame.left,
                     to + column * at.step);
}

template <class Mode>
void PackImages(const PackRecordsArgs& a) {
  const RecordRows at(a);
  const int together = a.frame.together, slots = (a.images + together - 1) / together * together;
  auto* records = reinterpret_cast<float*>(a.records);
  for (int image = 0; image < slots; ++image) {
    float* group = records + image / together * at.group + image % together * kValues;
    for (int remainder = 0; remainder < a.frame.remainders; ++remainder) {
      for (int row = 0; row < a.frame.rows; ++row) {
        float* to = group + remainder * at.remainder + row * at.row;
        const int y = row - a.frame.top;
        const std::int64_t value = (std::int64_t{image} * a.h + y) * a.w * a.c;
        if (image >= a.images || y < 0 || y >= a.h)
          ZeroRecords(at, a.frame.blocks, to, a.frame.columns);
        else if (a.frame.window > 1)
          PackWindows<Mode>(a, at, value, to);
        else
          PackRow<Mode>(a, at, value, remainder, to);
      }
    }
  }
}

}  // namespace

void PackRecordsOfFloats(const PackRecordsArgs& a) {
  switch (a.x.storage) {
    case Storage::kF16:
      return PackImages<ModeF16>(a);
    case Storage::kBF16:
      return PackImages<ModeBF16>(a);
    default:
      return PackImages<ModeF32>(a);
  }
}

// Row k of a tile holds input channel k of 16 output channels.
void PackWeightsOfFloats(const PackWeightsArgs& a) {
  auto* to = reinterpret_cast<float*>(a.tiles);
  std::fill_n(to, kValues * kValues, 0.0f);
  for (int column = 0; column < a.columns; ++column)
    for (int k = 0; k < a.k; ++k)
      to[k * kValues + column] = a.plain[column * a.column_step + k * a.k_step];
}

}  // namespace ada::backend::cpu::ADA_ISA
