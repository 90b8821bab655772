// Every float tensor once through RoundTo, or in blocks through QuantizeBlocks; what is no float
// tensor is copied.
#include <algorithm>
#include <map>
#include <ostream>
#include <vector>

#include "error.h"
#include "io/shown_text.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "number/random.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"
#include "study/convert/block_tensor.h"

namespace ada::study {
namespace {

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

// The values of a tensor times `factor`, in double: those of F64 have not been rounded before.
std::vector<double> Scaled(const SafetensorsFile& file, const TensorEntry& entry, float factor) {
  if (entry.dtype == DType::kF64) {
    std::vector<double> wide = file.ReadF64(entry.name);
    for (double& x : wide) x *= static_cast<double>(factor);
    return wide;
  }
  std::vector<double> values;
  for (const float x : file.ReadF32(entry.name)) values.push_back(static_cast<double>(x * factor));
  return values;
}

// Value i of a tensor takes word i of a stream that its name gives.
void ConvertTable(const SafetensorsFile& file, const TensorEntry& entry,
                  const ConvertOptions& options, float factor, TensorList& to) {
  const TableFormat& format = *options.table;
  const RoundingWords words{options.seed ^ StreamId(entry.name), 0};
  const bool draws = IsStochastic(options.modes.rounding);
  const bool wide = format.sign > 128 || format.codes.back() > 255;
  std::vector<float> values;
  std::vector<std::byte> codes;
  std::uint64_t i = 0;
  for (const double x : Scaled(file, entry, factor)) {
    const std::uint16_t code = format.CodeOf(x, options.modes, draws ? words.At(i) : 0);
    values.push_back(static_cast<float>(format.ValueOf(code)));
    codes.push_back(static_cast<std::byte>(code));
    if (wide) codes.push_back(static_cast<std::byte>(code >> 8));
    ++i;
  }
  if (options.save_scales)
    to.Add(entry.name + kCodesEnding, wide ? DType::kU16 : DType::kU8, entry.shape,
           std::move(codes));
  to.Add(entry.name, entry.shape, std::move(values));
}

// The values are decoded in place; codes and scales are made only where they are asked for.
void ConvertBlocks(const SafetensorsFile& file, const TensorEntry& entry, const BlockFormat& format,
                   const ConvertOptions& options, float factor, TensorList& to) {
  BlockTensor tensor = ReadBlockTensor(file, entry, format, options.axis, factor);
  if (options.save_scales) {
    ScaledBlocks blocks = QuantizeTensor(tensor, format);
    AddParts(entry.name, format, blocks, entry.shape, to);
    to.Add(entry.name, entry.shape, std::move(blocks.values));
    return;
  }
  QuantizeBlocks(format, tensor.layout, tensor.amax, tensor.bf16, tensor.values.data(),
                 {tensor.values.data()}, nullptr);
  to.Add(entry.name, entry.shape, std::move(tensor.values));
}

bool IsConverted(const TensorEntry& entry, const ConvertOptions& options) {
  return IsFloat(entry.dtype) && GlobMatch(options.tensors, entry.name);
}

// Tensors of types that are not read, though they may be floats: one line for each type. Types such
// as FP8 are floats for their writer; copying them silently would look as if they had been
// converted.
void NoteCopies(const SafetensorsFile& file, const ConvertOptions& options, std::ostream& notes) {
  constexpr std::size_t kNamed = 5;
  std::map<std::string, std::vector<std::string>> names;  // by the type
  for (const TensorEntry& entry : file.entries())
    if (entry.dtype == DType::kOther && GlobMatch(options.tensors, entry.name))
      names[entry.dtype_text()].push_back(Visible(entry.name));
  for (const auto& [type, of_type] : names)
    notes << Visible(file.path()) << ": " << Counted(std::ssize(of_type), "tensor") << " of type "
          << type << ", which is not read, copied as it stands: " << FirstNames(of_type, kNamed)
          << '\n';
}

// The names that --save-scales adds must be free.
void CheckNames(const SafetensorsFile& file, const ConvertOptions& options) {
  for (const TensorEntry& entry : file.entries()) {
    if (!IsConverted(entry, options)) continue;
    for (const char* ending :
         {kScaleEnding, kCodesEnding, kAmaxEnding, kEightsEnding, kFoursEnding}) {
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
  const bool has_codes = blocks != nullptr || options.table;
  if ((options.axis && blocks == nullptr) || (options.save_scales && !has_codes))
    throw ConfigError(std::string(options.axis ? "--axis" : "--save-scales") + ": " +
                      (options.table ? options.table->name : FormatName(options.format)) +
                      " has no scales of blocks; expected a block-scaled --format");
  const SafetensorsFile file = SafetensorsFile::Open(options.input);
  CheckTensorsGlob(file, options.tensors);
  if (options.save_scales) CheckNames(file, options);
  TensorList tensors;
  for (const TensorEntry& entry : file.entries()) {
    if (!IsConverted(entry, options))
      tensors.Copy(entry, file.Bytes(entry.name));
    else if (options.table)
      ConvertTable(file, entry, options, factor, tensors);
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
  NoteCopies(file, options, notes);
}

}  // namespace ada::study
