// The tensors of a file that is to be written. A file's tensor on its way to a block-scaled format:
// its values, the place of its blocks; and what a file keeps of it: decoded values, codes and
// scales.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "number/blocks/block_quantizer.h"

namespace ada::study {

// The endings of what a format keeps of a tensor NAME besides its values.
inline constexpr char kScaleEnding[] = ".scale", kCodesEnding[] = ".codes", kAmaxEnding[] = ".amax",
                      kEightsEnding[] = ".e8", kFoursEnding[] = ".e16";

// Deques keep the places of what they hold, so the spans of items stay valid while more is added.
// All of a file is in memory before its first byte is written.
class TensorList {
 public:
  void Add(std::string name, std::vector<std::int64_t> shape, std::vector<float> values) {
    const std::vector<float>& kept = floats_.emplace_back(std::move(values));
    items_.push_back(
        {std::move(name), DType::kF32, std::move(shape), std::as_bytes(std::span(kept)), nullptr});
  }
  void Add(std::string name, DType dtype, std::vector<std::int64_t> shape,
           std::vector<std::byte> bytes) {
    const std::vector<std::byte>& kept = bytes_.emplace_back(std::move(bytes));
    items_.push_back({std::move(name), dtype, std::move(shape), kept, nullptr});
  }
  // The entry is kept for its type: one that is not read goes out as it came in.
  void Copy(const TensorEntry& entry, std::vector<std::byte> bytes) {
    const std::vector<std::byte>& kept = bytes_.emplace_back(std::move(bytes));
    items_.push_back({entry.name, entry.dtype, entry.shape, kept, &entry});
  }
  // Large elements first, so that every tensor lies at a multiple of its element's size.
  void GoTo(SafetensorsWriter& writer) {
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return BytesOf(a.dtype) > BytesOf(b.dtype);
    });
    for (const Item& item : items_) {
      if (item.copied != nullptr)
        writer.AddCopy(*item.copied, item.bytes);
      else
        writer.Add(item.name, item.dtype, item.shape, item.bytes);
    }
  }

 private:
  struct Item {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> bytes;
    const TensorEntry* copied;
  };
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<Item> items_;
};

// Values are in the file's order; `layout` says where rows and blocks lie among them, as
// QuantizeBlocks (number/blocks/) wants it. convert and inspect make one a tensor and drop it.
struct BlockTensor {
  std::vector<float> values;
  BlockLayout layout;
  float amax = 0;        // of the values
  bool bf16 = false;     // the file has them as BF16
  std::size_t axis = 0;  // along which blocks run
  std::vector<std::int64_t> shape;
};

// Reads a float tensor, times `factor`: F64 is multiplied in double and rounded to fp32. `axis`:
// from the front, or with a minus from the end; unset: the last. ConfigError naming the tensor
// where it has no such axis.
BlockTensor ReadBlockTensor(const SafetensorsFile& file, const TensorEntry& entry,
                            const BlockFormat& format, std::optional<int> axis, float factor);

// --- As files keep it ---

// Scales and amaxes are in the order of a file (block_tensor.h), the rest in that of the values.
struct ScaledBlocks {
  std::vector<std::int64_t> shape;
  std::size_t axis = 0;       // along which blocks run
  std::vector<float> values;  // decoded
  std::vector<std::byte> codes;
  std::vector<std::byte> doubled;  // of HiFloat4 (QuantizedBlocks); else empty
  std::vector<float> scales;       // as they are stored
  std::vector<std::int64_t> scales_shape;
  std::vector<float> amaxes;  // of the tensor or of its rows; empty: the format asks for none
  std::vector<std::int64_t> amaxes_shape;
};

// words: unless null, elements are rounded stochastically.
ScaledBlocks QuantizeTensor(const BlockTensor& tensor, const BlockFormat& format,
                            const RoundingWords* words = nullptr);

// Adds NAME.scale (codes in U8, fp32 scales in F32), NAME.amax, of HiFloat4 NAME.e8 and NAME.e16
// (U8; the axis an eighth and a quarter as long), and NAME.codes in `shape`, one code a byte: whole
// numbers in I8, others in U8 with the sign on top.
void AddParts(const std::string& name, const BlockFormat& format, const ScaledBlocks& blocks,
              const std::vector<std::int64_t>& shape, TensorList& to);

// Throws ConfigError where the glob of --tensors matches no tensor of a file that has some: that is
// a slip. Called by inspect and convert before they read any values.
void CheckTensorsGlob(const SafetensorsFile& file, const std::string& glob);

}  // namespace ada::study
