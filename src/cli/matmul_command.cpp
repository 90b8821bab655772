// matmul: what the matmuls of one linear layer lose.
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command_line.h"
#include "cli/output.h"
#include "error.h"
#include "study/commands.h"

namespace ada::cli {
namespace {

// Formats stay texts until all options are parsed, so that their messages come after those.
struct MatmulArguments : ConfigArguments {
  std::optional<std::string> dy, x_format, w_format, dy_format;
  bool csv = false, json = false, table = false;
  study::MatmulOptions options;
};

std::optional<NumberFormat> CodesFormat(const char* option, const std::optional<std::string>& text,
                                        const std::optional<NumberFormat>& otherwise) {
  if (!text) return otherwise;
  const AnyFormat format = config::ReadTensorFormat(option, *text);
  const auto* plain = std::get_if<NumberFormat>(&format);
  if (plain == nullptr || plain->exponent_bits + plain->mantissa_bits > 15)
    throw ConfigError(std::string(option) + " " + *text +
                      ": expected a plain format of at most 16 bits");
  return *plain;
}

study::View ViewOf(const MatmulArguments& a) {
  if (a.csv + a.json + a.table > 1)
    throw ConfigError("--csv, --json and --table: expected one of them");
  return a.csv ? study::View::kCsv : a.json ? study::View::kJson : study::View::kTable;
}

int Matmul(MatmulArguments& a) {
  study::MatmulOptions& options = a.options;
  RequireOperand(options.path, a.set, "FILE", "matmul");
  options.view = ViewOf(a);
  if (options.operands && options.output.empty())
    throw ConfigError("--operands: expected -o OUT, the file that they go to");
  options.x_format = CodesFormat("--x-format", a.x_format, std::nullopt);
  options.w_format = CodesFormat("--w-format", a.w_format, options.x_format);
  options.dy_format = CodesFormat("--dy-format", a.dy_format, options.x_format);
  if (a.dy) options.dy = *a.dy, options.needs_dy = true;
  const config::Config config =
      a.config.empty() ? PrintNotes(config::LoadPrecision(OverridesOf(a.set))) : ConfigOf(a);
  options.precision = config::PrecisionAt(config::PrecisionOfStored(config), 1);
  options.seed = config.seed;
  options.threads = config.device.threads;
  OutputPaths paths;
  paths.Read("FILE", options.path);
  if (!a.config.empty()) paths.Read("--config", a.config);
  if (!options.output.empty()) paths.Write("-o", options.output);
  paths.Check();
  study::Matmul(options, std::cout, std::cerr);
  return 0;
}

}  // namespace

Commands AddMatmulCommands(CLI::App& app) {
  auto a = std::make_shared<MatmulArguments>();
  CLI::App* matmul =
      Add(app, "matmul", "what operands and sums of a linear layer's three matmuls lose",
          "  ada-train matmul layer.safetensors --recipe te_mxfp8\n"
          "  ada-train matmul layer.safetensors --set precision.operands=nvfp4 -o out.safetensors "
          "--operands");
  study::MatmulOptions& options = a->options;
  AddValue(*matmul, "FILE", options.path, "",
           "a safetensors file with x [.., in], w [out, in] and dy [.., out];\n"
           "without dy y = x w^T alone, else dx = dy w and dw = dy^T x too");
  AddValue(*matmul, "-c,--config", a->config, "FILE", "a configuration, whose precision is taken");
  AddSet(*matmul, a->set, "--set precision.operands.dy=fp8_e5m2");
  matmul
      ->add_option_function<std::string>(
          "--recipe",
          [&set = a->set](const std::string& name) {
            set.push_back("precision.recipe=" + config::YamlText(name));
          },
          "operands as another program has them (precision.recipe)")
      ->type_name("NAME")
      ->trigger_on_parse();
  AddValue(*matmul, "--layer", options.layer, "NAME",
           "whose entries of precision.layers apply (matmul)");
  AddValue(*matmul, "--x", options.x, "NAME", "the input (x)");
  AddValue(*matmul, "--w", options.w, "NAME", "the weight (w)");
  AddValue(*matmul, "--dy", a->dy, "NAME", "the gradient of y (dy, where there is one)");
  AddValue(*matmul, "--x-format", a->x_format, "FORMAT",
           "what tensors of type U16 or U8 hold as codes: fp16, bf16, fp8_e4m3 ...");
  AddValue(*matmul, "--w-format", a->w_format, "FORMAT", "the same of w (as --x-format)");
  AddValue(*matmul, "--dy-format", a->dy_format, "FORMAT", "the same of dy (as --x-format)");
  matmul
      ->add_flag("--stochastic", options.stochastic,
                 "draw where a training rounds stochastically; else to nearest")
      ->group("Output");
  AddValue(*matmul, "-o,--output", options.output, "OUT", "y, dx and dw as safetensors, in F32")
      ->group("Output");
  matmul
      ->add_flag("--operands", options.operands,
                 "into OUT: forward.x .. dw.dy as they are multiplied, their .codes and .scale")
      ->group("Output");
  matmul->add_flag("--csv", a->csv, "a row for each operand and each result")->group("Output");
  matmul->add_flag("--json", a->json, "the same as JSON")->group("Output");
  matmul->add_flag("--table", a->table, "a table (the default)")->group("Output");
  return {{matmul, [a] { return Matmul(*a); }}};
}

}  // namespace ada::cli
