// Which tensors of the file are multiplied, and in which form the answer is given.
#include <cmath>
#include <ostream>

#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "number/number_format.h"
#include "study/matmul/matmul_rows.h"
#include "study/output.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

using run::StoredMatrix;

// A tensor of the file as a matrix: its last axis are the columns.
struct NamedMatrix {
  StoredMatrix matrix;
  std::vector<std::int64_t> shape;
};

NumberFormat FormatOfType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kFp16;
    case DType::kBF16:
      return kBf16;
    case DType::kF8E4M3:
      return kFp8E4M3;
    case DType::kF8E5M2:
      return kFp8E5M2;
    default:
      return kFp32;
  }
}

[[noreturn]] void RefuseTensor(const SafetensorsFile& file, const std::string& name,
                               const std::string& what) {
  throw DataError(file.path() + ": tensor " + Shown(name) + ": " + what);
}

// Codes of 8 or 16 bits, as other programs store formats that their files have no type for.
std::vector<float> DecodedCodes(const SafetensorsFile& file, const TensorEntry& entry,
                                const NumberFormat& format) {
  const std::vector<std::byte> bytes = file.Bytes(entry.name);
  const std::size_t width = BytesOf(entry.dtype);
  const std::vector<float> values = ValuesOfCodes(format);
  std::vector<float> decoded(bytes.size() / width);
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    std::uint32_t code = 0;
    for (std::size_t k = width; k-- > 0;)
      code = code << 8 | static_cast<std::uint32_t>(bytes[i * width + k]);
    if (code >= values.size())
      RefuseTensor(file, entry.name,
                   "value " + std::to_string(i) + " is " + std::to_string(code) + ", no code of " +
                       FormatName(format));
    decoded[i] = values[code];
  }
  return decoded;
}

// codes: the format of U16 and U8, by the option of that name.
NamedMatrix ReadMatrix(const SafetensorsFile& file, const std::string& name,
                       const std::optional<NumberFormat>& codes, const char* option) {
  const TensorEntry* entry = file.Find(name);
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const TensorEntry& known : file.entries()) names.push_back(Visible(known.name));
    throw DataError(file.path() + ": has no tensor " + Shown(name) + "; it has " +
                    (names.empty() ? "none" : FirstNames(names, 8)));
  }
  if (entry->shape.size() < 2)
    RefuseTensor(file, name,
                 std::string("has ") + (entry->shape.empty() ? "no" : "one") +
                     " axis; expected two or more, rows and columns");
  if (entry->numel() == 0) RefuseTensor(file, name, "has no values");
  NamedMatrix read;
  read.shape = entry->shape;
  read.matrix.columns = entry->shape.back();
  read.matrix.rows = entry->numel() / read.matrix.columns;
  if (entry->dtype == DType::kU16 || entry->dtype == DType::kU8) {
    const int bits = codes ? 1 + codes->exponent_bits + codes->mantissa_bits : 0;
    if (bits == 0 || (bits > 8) != (entry->dtype == DType::kU16))
      RefuseTensor(file, name,
                   "is of type " + entry->dtype_text() + "; " + option +
                       (entry->dtype == DType::kU16 ? " fp16 or bf16 says what its codes are"
                                                    : " says what its codes are, such as "
                                                      "fp8_e4m3"));
    read.matrix.values = DecodedCodes(file, *entry, *codes);
    read.matrix.format = *codes;
    return read;
  }
  if (!IsFloat(entry->dtype))
    RefuseTensor(file, name, "is of type " + entry->dtype_text() + "; expected floats");
  read.matrix.values = file.ReadF32(name);
  read.matrix.format = FormatOfType(entry->dtype);
  return read;
}

// x [.., in], w [out, in], dy [.., out], of one batch.
void CheckShapes(const SafetensorsFile& file, const MatmulOptions& options, const NamedMatrix& x,
                 const NamedMatrix& w, const NamedMatrix& dy) {
  const auto misfit = [&](const std::string& what) {
    std::string text = file.path() + ": " + what + ": " + options.x + " " + DimsText(x.shape) +
                       ", " + options.w + " " + DimsText(w.shape);
    if (dy.matrix) text += ", " + options.dy + " " + DimsText(dy.shape);
    throw DataError(text + "; expected [.., in], [out, in], [.., out]");
  };
  if (w.shape.size() != 2) misfit("the weight is no matrix");
  if (x.matrix.columns != w.matrix.columns) misfit("x and w have different numbers of inputs");
  if (!dy.matrix) return;
  if (dy.matrix.columns != w.matrix.rows) misfit("dy and w have different numbers of outputs");
  if (dy.matrix.rows != x.matrix.rows) misfit("x and dy have different numbers of rows");
}

bool AnyStochastic(const config::PrecisionConfig& precision) {
  const auto draws = [](const config::OperandsConfig& operands) {
    for (const auto& operand : operands.by_operand)
      if (operand && config::IsStochastic(operand->rounding)) return true;
    return false;
  };
  bool any = draws(precision.operands) || config::IsStochastic(precision.rounding);
  for (const config::LayerPrecisionConfig& layer : precision.layers)
    any = any || draws(layer.operands);
  return any;
}

constexpr std::size_t kFormatWidth = 24;

std::string Small(double value) {
  if (std::isnan(value)) return "-";
  return value == 0 ? "0" : Formatted("%.1e", value);
}

std::string SizeText(const MatmulRow& row) {
  return std::to_string(row.rows) + "x" + std::to_string(row.columns) + " of " +
         std::to_string(row.terms);
}

void PrintMatmulOperands(const std::vector<MatmulRow>& rows, std::ostream& out) {
  out << "operands (lost: of the values other than zero, in %; satur.: values; SQNR in dB; log2 "
         "of\nscales)\n";
  TextTable table({"matmul", "tensor", "format", "lost", "satur.", "SQNR", "scales"}, 3);
  for (const MatmulRow& row : rows) {
    if (row.is_result) continue;
    table.Row({row.matmul, row.tensor, CutText(row.format, kFormatWidth),
               PctText(row.lost_pct_nonzero), std::to_string(row.saturated),
               telemetry::DecibelText(row.sqnr_db), telemetry::ScalesText(row)});
  }
  table.Print(out, kTerminalWidth);
}

void PrintSumsTable(const std::vector<MatmulRow>& rows, std::ostream& out) {
  out << "sums (SQNR in dB: of exact sums of the operands, of the sums, and of both; largest\n"
         "error over the sum of magnitudes; mean error over the mean magnitude)\n";
  TextTable table({"sum", "size", "operands", "sums", "both", "max_rel", "bias", "lost"}, 2);
  for (const MatmulRow& row : rows) {
    if (!row.is_result) continue;
    table.Row({row.tensor, SizeText(row), telemetry::DecibelText(row.operands_sqnr_db),
               telemetry::DecibelText(row.sums_sqnr_db), telemetry::DecibelText(row.sqnr_db),
               Small(row.max_rel), Small(row.bias), std::to_string(row.lost)});
  }
  table.Print(out, kTerminalWidth);
  for (const MatmulRow& row : rows)
    if (row.is_result && row.accumulator != "fp32")
      PrintWrapped(row.tensor + ": sums by " + row.accumulator + ", " + PctText(row.swallowed_pct) +
                       " % of " + std::to_string(row.products) + " products swallowed",
                   2, out);
}

}  // namespace

void Matmul(const MatmulOptions& options, std::ostream& out, std::ostream& notes) {
  const SafetensorsFile file = SafetensorsFile::Open(options.path);
  const NamedMatrix x = ReadMatrix(file, options.x, options.x_format, "--x-format");
  const NamedMatrix w = ReadMatrix(file, options.w, options.w_format, "--w-format");
  NamedMatrix dy;
  if (options.needs_dy || file.Find(options.dy) != nullptr)
    dy = ReadMatrix(file, options.dy, options.dy_format, "--dy-format");
  CheckShapes(file, options, x, w, dy);
  run::LinearSetup setup;
  setup.precision = options.precision;
  setup.layer = options.layer;
  setup.seed = options.seed;
  setup.stochastic = options.stochastic;
  setup.threads = options.threads;
  const run::LinearMatmuls matmuls =
      run::ComputeLinearMatmuls(setup, {x.matrix, w.matrix, dy.matrix});
  if (!options.output.empty()) WriteMatmuls(matmuls, x.shape, options.operands, options.output);
  const std::vector<MatmulRow> rows = RowsOf(matmuls);
  if (options.view == View::kCsv) {
    PrintCsv(rows, out);
  } else if (options.view == View::kJson) {
    PrintJson({{"layer", options.layer}, {"rows", RowsJson(rows)}}, out);
  } else {
    PrintMatmulOperands(rows, out);
    PrintSumsTable(rows, out);
  }
  if (!options.stochastic && AnyStochastic(options.precision))
    notes << "what a training rounds stochastically is rounded to nearest here; --stochastic draws"
             "\n";
}

}  // namespace ada::study
