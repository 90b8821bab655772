// Block-scaled formats behind the C interface.
#include <cmath>
#include <vector>

#include "c_api/handles.h"
#include "config/sections/sections.h"
#include "config/yaml/document.h"
#include "config/yaml/problems.h"
#include "error.h"
#include "number/blocks/operand_blocks.h"

// A format that RefuseBlockFormat accepted; it does not change after it was made.
struct ada_block_format {
  ada::BlockFormat format;
};

namespace ada::c_api {
namespace {

// Read by the tables of the configuration, so a text means here what it means in
// precision.operands. Throws ConfigError.
ada_block_format* NewBlockFormat(const std::string& text) {
  config::Problems problems("format", {});
  std::optional<BlockFormat> format;
  try {
    config::YamlNode node = config::ParseYaml(text, 0);
    config::RemoveDuplicates(node, "", problems);
    format = config::ReadBlockFormatNode(node, {problems, "", node});
  } catch (const config::ParseProblem& problem) {
    throw ConfigError("format '" + text + "': " + problem.message);
  }
  problems.ThrowIfAny();
  // Nothing without a problem: the text is neither a map nor a known name.
  if (format) return new ada_block_format{*format};
  std::string names;
  for (const std::string& name : config::BlockFormatNames()) names += name + ", ";
  throw ConfigError("format '" + text + "': expected " + names +
                    "or a map such as {element: fp4_e2m1, rule: rceil}");
}

// The bounds of the header: more than any tensor has, and small enough for products of sizes.
constexpr std::int32_t kMostAxes = 16;
constexpr std::int64_t kMostValues = std::int64_t{1} << 40;

// The layout of an operand for QuantizeOperand. Throws ConfigError for what a caller may get wrong;
// sizes are bounded so that their product cannot overflow.
OperandPlace PlaceOf(const ada_operand& operand) {
  OperandPlace place;
  place.weight = operand.weight != 0, place.linear = operand.linear != 0;
  place.groups = operand.groups;
  place.along_channels = operand.along_channels != 0;
  if (operand.rank < 2 || operand.rank > kMostAxes || operand.dims == nullptr)
    throw ConfigError("an operand has two axes or more, " + std::to_string(kMostAxes) +
                      " at most; got " + std::to_string(operand.rank));
  place.dims.assign(operand.dims, operand.dims + operand.rank);
  std::int64_t values = 1;
  for (const std::int64_t size : place.dims) {
    if (size < 1 || size > kMostValues / values)
      throw ConfigError(
          "an operand's axes are 1 or more, and hold 2^40 values at most; got an axis of " +
          std::to_string(size));
    values *= size;
  }
  // Weights have output channels first, x and dy have images first and channels second.
  const std::int64_t channels = place.dims[place.weight ? 0 : 1];
  if (place.groups < 1 || (!place.linear && channels % place.groups != 0))
    throw ConfigError("groups divide the channels of an operand; got " +
                      std::to_string(place.groups) + " of " + std::to_string(channels));
  // All values of an image are features of one product.
  if (place.linear) place.groups = 1;
  return place;
}

// The members in the order of the struct of the header. Without a block that has a scale the
// extremes mean nothing, and the means are NaN by themselves.
ada_block_figures FiguresOf(const BlockCounts& counts) {
  const bool scaled = counts.scaled_blocks > 0;
  return {counts.numel,
          counts.zeros,
          counts.inf,
          counts.nan,
          counts.lost_beside_largest,
          counts.lost_scale_rounding,
          counts.lost_scale_floor,
          counts.lost_tensor_scale,
          counts.saturated,
          counts.blocks,
          counts.zero_blocks,
          counts.broken_blocks,
          scaled ? counts.log2_min : NAN,
          scaled ? counts.log2_max : NAN,
          counts.log2_mean(),
          counts.log2_std(),
          counts.at_floor,
          counts.at_ceiling,
          counts.sqnr_db(),
          counts.sqnr_mean_db(),
          counts.sqnr_worst_db()};
}

// The values are copied first, since `decoded` may be the same memory.
int32_t QuantizeFor(const ada_block_format& format, const ada_operand& operand, const float* values,
                    float* decoded, ada_block_figures* figures) {
  const OperandPlace place = PlaceOf(operand);
  std::int64_t count = 1;
  for (const std::int64_t size : place.dims) count *= size;
  const std::vector<float> kept(values, values + count);
  BlockCounts counts;
  QuantizeOperand(format.format, place, operand.bf16 != 0, kept, decoded,
                  figures != nullptr ? &counts : nullptr);
  if (figures != nullptr) *figures = FiguresOf(counts);
  return 0;
}

}  // namespace
}  // namespace ada::c_api

// Null for what is no block-scaled format; ada_error() then lists the names.
ada_block_format* ada_block_format_new(const char* text) {
  return ada::c_api::Guarded(static_cast<ada_block_format*>(nullptr),
                             [&] { return ada::c_api::NewBlockFormat(text); });
}
void ada_block_format_free(ada_block_format* format) { delete format; }
const char* ada_block_format_name(const ada_block_format* format) {
  return ada::c_api::Guarded<>(static_cast<const char*>(nullptr),
                               [&] { return ada::c_api::Kept(ada::FormatName(format->format)); });
}
// Reads all values before it writes any. `format` is only read, so threads may share it.
int32_t ada_operand_quantize(const ada_block_format* format, const ada_operand* operand,
                             const float* values, float* decoded, ada_block_figures* figures) {
  return ada::c_api::Guarded(
      1, [&] { return ada::c_api::QuantizeFor(*format, *operand, values, decoded, figures); });
}
