// Sees an operand as one or more matrices in which a product sums over columns or over rows, and
// leaves the rest to the quantizer of blocks.
#include "number/blocks/operand_blocks.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace ada {
namespace {

// A matrix whose rows or columns are summed over, `count` of them one after the other.
struct Plane {
  BlockLayout across;  // blocks along columns
  BlockLayout down;    // blocks along rows
  std::int64_t count = 1, size = 0;
};

// Returns the product of the dimensions from number `from` on; 1 where there are none.
std::int64_t ProductOf(const std::vector<std::int64_t>& dims, std::size_t from) {
  return std::accumulate(dims.begin() + static_cast<std::ptrdiff_t>(from), dims.end(),
                         std::int64_t{1}, std::multiplies<>());
}

// x or dy as [images and pixels, channels]: groups split the columns.
Plane PlaneOfBatch(const OperandPlace& place) {
  const std::int64_t columns = place.linear ? ProductOf(place.dims, 1) : place.dims[1];
  const std::int64_t rows = place.dims[0] * (place.linear ? 1 : ProductOf(place.dims, 2));
  const std::int64_t group = columns / place.groups;
  Plane plane;
  plane.across = {place.groups, rows, group, group, columns, 1};
  plane.down = {1, columns, rows, 0, 1, columns};
  return plane;
}

// w: rows are output channels, which groups split, columns input channels at each tap.
Plane PlaneOfWeights(const OperandPlace& place) {
  const std::int64_t rows = place.dims[0] / place.groups, columns = place.dims[1];
  const std::int64_t taps = ProductOf(place.dims, 2);
  Plane plane;
  plane.across = {taps, rows, columns, 1, columns * taps, taps};
  plane.down = {1, columns * taps, rows, 0, 1, columns * taps};
  plane.count = place.groups, plane.size = rows * columns * taps;
  return plane;
}

// [images, channels, pixels] to [images, pixels, channels], or back.
std::vector<float> Turned(const std::vector<float>& values, const OperandPlace& place, bool back) {
  const auto channels = static_cast<std::size_t>(place.dims[1]);
  const auto pixels = static_cast<std::size_t>(ProductOf(place.dims, 2));
  const std::size_t image = channels * pixels;
  std::vector<float> turned(values.size());
  for (std::size_t first = 0; first < values.size(); first += image) {
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t p = 0; p < pixels; ++p) {
        const std::size_t here = first + c * pixels + p, there = first + p * channels + c;
        turned[back ? here : there] = values[back ? there : here];
      }
    }
  }
  return turned;
}

const BlockLayout& LayoutIn(const Plane& plane, const BlockFormat& format,
                            const OperandPlace& place) {
  return place.along_channels || format.square ? plane.across : plane.down;
}

Plane PlaneOf(const OperandPlace& place) {
  return place.weight ? PlaneOfWeights(place) : PlaneOfBatch(place);
}

// Convolutions' tensors are stored by channel, and a plane wants a pixel's channels together: they
// are turned into a copy, unless the caller keeps them so.
bool Turns(const OperandPlace& place) {
  return !place.weight && !place.linear && !place.channels_last;
}

// Plane i of an operand, from its values onwards, under those amaxes that are its own.
void QuantizePlane(const BlockFormat& format, const BlockLayout& layout, std::int64_t plane,
                   const OperandAmaxes& amaxes, float tensor_amax, bool bf16, const float* values,
                   const QuantizedBlocks& output, BlockCounts* counts) {
  if (!format.row_scaled || amaxes.rows.empty())
    return QuantizeBlocks(format, layout, tensor_amax, bf16, values, output, counts);
  const std::int64_t rows = layout.matrices * layout.rows;
  QuantizeRows(format, layout,
               std::span(amaxes.rows)
                   .subspan(static_cast<std::size_t>(plane * rows), static_cast<std::size_t>(rows)),
               bf16, values, output, counts);
}

}  // namespace

OperandLines LinesOfOperand(const OperandPlace& place) {
  const Plane plane = PlaneOf(place);
  return {place.along_channels ? plane.across : plane.down, plane.count, plane.size};
}

std::vector<float> RowAmaxesOfOperand(const OperandPlace& place, const std::vector<float>& values) {
  const std::vector<float> turned =
      Turns(place) ? Turned(values, place, false) : std::vector<float>();
  const std::vector<float>& from = Turns(place) ? turned : values;
  const OperandLines lines = LinesOfOperand(place);
  std::vector<float> all;
  for (std::int64_t i = 0; i < lines.planes; ++i) {
    const std::vector<float> amaxes = RowAmaxesOf(lines.layout, from.data() + i * lines.size);
    all.insert(all.end(), amaxes.begin(), amaxes.end());
  }
  return all;
}

void QuantizeOperand(const BlockFormat& format, const OperandPlace& place, bool bf16,
                     const std::vector<float>& values, float* decoded, BlockCounts* counts,
                     const OperandAmaxes& amaxes) {
  const Plane plane = PlaneOf(place);
  const std::vector<float> turned =
      Turns(place) ? Turned(values, place, false) : std::vector<float>();
  const std::vector<float>& from = Turns(place) ? turned : values;
  std::vector<float> to(decoded == nullptr ? 0 : values.size());
  const float amax = amaxes.tensor ? *amaxes.tensor : AmaxOf(values);
  for (std::int64_t i = 0; i < plane.count; ++i) {
    QuantizedBlocks output;
    if (decoded != nullptr) output.values = to.data() + i * plane.size;
    QuantizePlane(format, LayoutIn(plane, format, place), i, amaxes, amax, bf16,
                  from.data() + i * plane.size, output, counts);
  }
  if (decoded == nullptr) return;
  if (Turns(place)) to = Turned(to, place, true);
  std::copy(to.begin(), to.end(), decoded);
}

void ForBlocksOfOperand(const BlockFormat& format, const OperandPlace& place,
                        const std::vector<float>& values,
                        const std::function<void(std::span<const float>)>& body) {
  const Plane plane = PlaneOf(place);
  const std::vector<float> turned =
      Turns(place) ? Turned(values, place, false) : std::vector<float>();
  const float* from = Turns(place) ? turned.data() : values.data();
  const BlockLayout& layout = LayoutIn(plane, format, place);
  std::vector<float> block;
  for (std::int64_t i = 0; i < plane.count; ++i, from += plane.size) {
    ForTiles(layout, format, [&](const BlockTile& tile) {
      block.clear();
      ForPlaces(layout, tile, [&](std::int64_t at) { block.push_back(from[at]); });
      body(block);
    });
  }
}

OperandScales ScalesOfOperand(const BlockFormat& format, const OperandPlace& place, bool bf16,
                              const std::vector<float>& values, const OperandAmaxes& amaxes) {
  const Plane plane = PlaneOf(place);
  const std::vector<float> turned =
      Turns(place) ? Turned(values, place, false) : std::vector<float>();
  const std::vector<float>& from = Turns(place) ? turned : values;
  const BlockLayout& layout = LayoutIn(plane, format, place);
  OperandScales scales;
  scales.dims = {plane.count * layout.matrices, layout.block_rows(format),
                 layout.blocks_per_row(format)};
  const std::int64_t blocks = layout.blocks(format);
  const float amax = amaxes.tensor ? *amaxes.tensor : AmaxOf(values);
  scales.values.resize(static_cast<std::size_t>(plane.count * blocks));
  for (std::int64_t i = 0; i < plane.count; ++i) {
    QuantizedBlocks output;
    output.scales = scales.values.data() + i * blocks;
    QuantizePlane(format, layout, i, amaxes, amax, bf16, from.data() + i * plane.size, output,
                  nullptr);
  }
  return scales;
}

}  // namespace ada
