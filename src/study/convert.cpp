// Every float tensor once through RoundTo, or in blocks through QuantizeBlocks; what is no float
// tensor is copied.
#include <algorithm>
#include <deque>
#include <map>
#include <ostream>
#include <span>
#include <vector>

#include "error.h"
#include "io/shown_text.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "scaling/policies/policies.h"
#include "study/blocks/block_tensor.h"
#include "study/commands.h"
#include "study/tensors_glob.h"

namespace ada::study {
namespace {

constexpr char kScaleEnding[] = ".scale", kCodesEnding[] = ".codes", kAmaxEnding[] = ".amax";

// The tensors of the output and the memory that they lie in.
// Deques keep the places of what they hold, so the spans of items stay valid while more is added.
// All of the output is in memory before the first byte is written.
class ConvertedTensors {
 public:
  void Add(std::string name, std::vector<std::int64_t> shape, std::vector<float> values) {
    const std::vector<float>& kept = floats_.emplace_back(std::move(values));
    items_.push_back(
        {std::move(name), DType::kF32, std::move(shape), std::as_bytes(std::span(kept)), nullptr});
  }
  void Add(std::string name, std::vector<std::int64_t> shape, std::vector<std::byte> codes) {
    const std::vector<std::byte>& kept = bytes_.emplace_back(std::move(codes));
    items_.push_back({std::move(name), DType::kU8, std::move(shape), kept, nullptr});
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

// The values of a tensor times `factor`. Those of F64 are multiplied in double, and rounded once.
// The result is fp32, which holds every value of every format.
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

// The codes of stored scales, which are on the grid of their format.
std::vector<std::byte> CodesOfScales(const BlockFormat& format, const std::vector<float>& scales) {
  std::vector<std::byte> codes(scales.size());
  std::transform(scales.begin(), scales.end(), codes.begin(), [&](float scale) {
    return static_cast<std::byte>(ScaleCodeOf(format.scale, scale));
  });
  return codes;
}

// The values are decoded in place; codes and scales are made only where they are asked for.
void ConvertBlocks(const SafetensorsFile& file, const TensorEntry& entry, const BlockFormat& format,
                   const ConvertOptions& options, float factor, ConvertedTensors& to) {
  BlockTensor tensor = ReadBlockTensor(file, entry, format, options.axis, factor);
  std::vector<float> scales;
  std::vector<std::byte> codes;
  if (options.save_scales) {
    scales.resize(static_cast<std::size_t>(tensor.layout.blocks(format)));
    codes.resize(tensor.values.size());
  }
  std::vector<float> row_amaxes;
  if (options.save_scales && format.row_scaled) row_amaxes = OrderedRowAmaxes(tensor);
  QuantizedBlocks output;
  output.values = tensor.values.data();
  if (options.save_scales) {
    output.codes = reinterpret_cast<std::uint8_t*>(codes.data());
    output.scales = scales.data();
  }
  QuantizeBlocks(format, tensor.layout, tensor.amax, tensor.bf16, tensor.values.data(), output,
                 nullptr);
  if (options.save_scales) {
    const std::vector<std::int64_t> shape = ShapeOfScales(tensor, format);
    std::vector<float> ordered = OrderedScales(tensor, format, scales);
    if (format.scale == BlockScale::kFp32)
      to.Add(entry.name + kScaleEnding, shape, std::move(ordered));
    else
      to.Add(entry.name + kScaleEnding, shape, CodesOfScales(format, ordered));
    if (format.row_scaled)
      to.Add(entry.name + kAmaxEnding, ShapeOfRows(tensor), std::move(row_amaxes));
    else if (format.tensor_scale)
      to.Add(entry.name + kAmaxEnding, {}, std::vector<float>{tensor.amax});
    to.Add(entry.name + kCodesEnding, entry.shape, std::move(codes));
  }
  to.Add(entry.name, entry.shape, std::move(tensor.values));
}

bool IsConverted(const TensorEntry& entry, const ConvertOptions& options) {
  return IsFloat(entry.dtype) && GlobMatch(options.tensors, entry.name);
}

// Tensors of types that are not read, though they may be floats: one line for each type. Types such
// as FP8 are floats for their writer; copying them silently would look as if they had been
// converted.
void TellOfCopies(const SafetensorsFile& file, const ConvertOptions& options, std::ostream& notes) {
  constexpr std::size_t kNamed = 5;
  std::map<std::string, std::vector<std::string>> names;  // by the type
  for (const TensorEntry& entry : file.entries())
    if (entry.dtype == DType::kOther && GlobMatch(options.tensors, entry.name))
      names[entry.dtype_text()].push_back(Visible(entry.name));
  for (const auto& [type, of_type] : names)
    notes << Visible(file.path()) << ": "
          << Counted(static_cast<std::int64_t>(of_type.size()), "tensor") << " of type " << type
          << ", which is not read, copied as it stands: " << FirstNames(of_type, kNamed) << '\n';
}

// The names that --save-scales adds must be free.
void CheckNames(const SafetensorsFile& file, const ConvertOptions& options) {
  for (const TensorEntry& entry : file.entries()) {
    if (!IsConverted(entry, options)) continue;
    for (const char* ending : {kScaleEnding, kCodesEnding, kAmaxEnding}) {
      if (file.Find(entry.name + ending) != nullptr)
        throw ConfigError("--save-scales: " + file.path() + " has a tensor " +
                          Shown(entry.name + ending) + " already, beside " + Shown(entry.name) +
                          "; rename it, or leave one of them out by --tensors");
    }
  }
}

}  // namespace

void Convert(const ConvertOptions& options, std::ostream& notes) {
  const float factor = scaling::CheckedScale("--scale", options.scale);
  const auto* blocks = std::get_if<BlockFormat>(&options.format);
  if (blocks == nullptr && (options.axis || options.save_scales))
    throw ConfigError(std::string(options.axis ? "--axis" : "--save-scales") + ": " +
                      FormatName(options.format) +
                      " has no scales of blocks; expected a block-scaled --format");
  const SafetensorsFile file = SafetensorsFile::Open(options.input);
  CheckTensorsGlob(file, options.tensors);
  if (options.save_scales) CheckNames(file, options);
  ConvertedTensors tensors;
  for (const TensorEntry& entry : file.entries()) {
    if (!IsConverted(entry, options))
      tensors.Copy(entry, file.Bytes(entry.name));
    else if (blocks != nullptr)
      ConvertBlocks(file, entry, *blocks, options, factor, tensors);
    else
      tensors.Add(entry.name, entry.shape,
                  Converted(file, entry, std::get<NumberFormat>(options.format), factor));
  }
  SafetensorsWriter writer;
  writer.SetMetadata(file.metadata());
  tensors.GoTo(writer);
  writer.WriteAtomically(options.output);
  TellOfCopies(file, options, notes);
}

}  // namespace ada::study
