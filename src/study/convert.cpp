// Every float tensor once through RoundTo; what is no float tensor is copied.
#include <algorithm>
#include <deque>
#include <span>
#include <vector>

#include "core/tensor_files/safetensors.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"

namespace ada::study {
namespace {

// The values of a tensor times `factor`. Those of F64 are multiplied in double, and rounded once.
std::vector<float> Converted(const SafetensorsFile& file, const TensorEntry& entry,
                             const NumberFormat& format, float factor) {
  if (entry.dtype == DType::kF64) {
    const std::vector<double> wide = file.ReadF64(entry.name);
    std::vector<float> values(wide.size());
    std::transform(wide.begin(), wide.end(), values.begin(),
                   [&](double x) { return RoundTo(format, x * static_cast<double>(factor)); });
    return values;
  }
  std::vector<float> values = file.ReadF32(entry.name);
  for (float& x : values) x = RoundTo(format, x * factor);
  return values;
}

}  // namespace

void Convert(const std::string& input, const std::string& output, const NumberFormat& format,
             double scale) {
  const float factor = scaling::CheckedScale("--scale", scale);
  const SafetensorsFile file = SafetensorsFile::Open(input);
  // Large elements first, so that every tensor lies at a multiple of its element's size.
  std::vector<const TensorEntry*> entries;
  for (const TensorEntry& entry : file.entries()) entries.push_back(&entry);
  std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
    const auto size = [](const TensorEntry& e) { return IsFloat(e.dtype) ? 4 : BytesOf(e.dtype); };
    return size(*a) > size(*b);
  });
  std::deque<std::vector<float>> converted;  // these live until the file is written
  std::deque<std::vector<std::byte>> kept;
  SafetensorsWriter writer;
  writer.SetMetadata(file.metadata());
  for (const TensorEntry* entry : entries) {
    if (!IsFloat(entry->dtype)) {
      writer.AddCopy(*entry, kept.emplace_back(file.Bytes(entry->name)));
      continue;
    }
    writer.Add(entry->name, entry->shape,
               converted.emplace_back(Converted(file, *entry, format, factor)));
  }
  writer.WriteAtomically(output);
}

}  // namespace ada::study
