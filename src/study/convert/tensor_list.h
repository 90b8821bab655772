// The tensors of a file that is to be written, and the memory that they are in.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"

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

}  // namespace ada::study
