// inspect, convert, replay: what reads files that may come from elsewhere.
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "config/load.h"
#include "core/utf8.h"
#include "study/commands.h"

namespace ada::cli {
namespace {

struct InspectArguments {
  std::string file, tensors = "*", format = "fp16", csv = "text";
  std::vector<std::string> set;
  std::optional<double> scale_in;
  bool all = false;
};

struct ConvertArguments {
  std::string file, to, format = "fp16";
  double scale = 1;
};

struct ReplayArguments {
  std::string scaling, trace;
  std::vector<std::string> set;
};

int Inspect(InspectArguments& a) {
  RequireOperand(a.file, a.set, "FILE", "inspect");
  study::InspectOptions options;
  options.path = a.file;
  options.tensors = a.tensors;
  options.format = config::ReadFormat(a.format);
  options.scale_in = a.scale_in;
  options.overrides = OverridesOf(a.set);
  options.output = a.all ? study::InspectOptions::Output::kAll : study::ParseInspectOutput(a.csv);
  study::Inspect(options, std::cout, std::cerr);
  return 0;
}

int Convert(const ConvertArguments& a) {
  study::Convert(a.file, a.to, config::ReadFormat(a.format), a.scale);
  return 0;
}

int Replay(const ReplayArguments& a) {
  config::LoadedScaling loaded = config::LoadScaling(a.scaling, OverridesOf(a.set));
  config::FillScalingDefaults(loaded.scaling, loaded.train);
  for (const std::string& note : loaded.notes)
    std::fprintf(stderr, "ada-train: %s\n", VisibleLines(note).c_str());
  const auto policy = scaling::MakePolicy(loaded.scaling);
  study::Replay(*policy, config::MaxRetries(loaded.train), a.trace, std::cout);
  return 0;
}

Command AddInspect(CLI::App& app) {
  auto a = std::make_shared<InspectArguments>();
  CLI::App* inspect =
      Add(app, "inspect", "what a format keeps of a file's tensors, what adaptive would choose",
          "  ada-train inspect gradients.safetensors --tensors '*.dy' --format fp8_e5m2\n"
          "  ada-train inspect gradients.safetensors --csv scales --scale-in 1024 --set "
          "scaling.underflow_target=1e-4");
  inspect
      ->add_option("FILE", a->file,
                   "a safetensors file, from any framework; layers:\n"
                   "NAME.dy with NAME.w (2 dimensions: linear, more: convolution) or without\n"
                   "(a cast), for method exact_range with NAME.dx; a convolution's stride and "
                   "groups follow\n"
                   "from NAME.x or NAME.dx")
      ->type_name("");
  inspect->add_option("--tensors", a->tensors, "glob: only these; layers by the name of their dy")
      ->type_name("GLOB");
  AddFormat(*inspect, a->format,
            "of all that is rounded, NAME.w before it is multiplied as well (fp16)");
  inspect
      ->add_option(
          "--scale-in", a->scale_in,
          "S that NAME.dy and NAME.dx carry (default: what the file's metadata say, as dumps do,\n"
          "else scaling.init_scale, 1): their values are rounded as they are, their extremes and\n"
          "moments shown without S")
      ->type_name("S");
  AddSet(*inspect, a->set,
         "--set scaling.method=abs_range (one method), any key of policy adaptive");
  auto* csv = inspect->add_option("--csv", a->csv, "counts or scales: a table for programs")
                  ->type_name("WHAT");
  inspect
      ->add_flag("--all", a->all,
                 "histograms, moments and the stages of each decision, not a line a tensor")
      ->excludes(csv);
  return {inspect, [a] { return Inspect(*a); }};
}

Command AddConvert(CLI::App& app) {
  auto a = std::make_shared<ConvertArguments>();
  CLI::App* convert = Add(
      app, "convert", "write what a format keeps: every float tensor rounded, as F32",
      "  ada-train convert weights.safetensors rounded.safetensors --format fp8_e4m3\n"
      "  ada-train convert gradients.safetensors scaled.safetensors --format fp16 --scale 1024");
  convert->add_option("IN", a->file, "a safetensors file")->type_name("")->required();
  convert->add_option("OUT", a->to, "what is written (may be IN)")->type_name("")->required();
  AddFormat(*convert, a->format, "what is kept");
  convert->get_option("--format")->required();
  convert
      ->add_option("--scale", a->scale, "factor before rounding (default 1); it stays in the file")
      ->type_name("S");
  return {convert, [a] { return Convert(*a); }};
}

Command AddReplay(CLI::App& app) {
  auto a = std::make_shared<ReplayArguments>();
  CLI::App* replay =
      Add(app, "replay", "what a global policy would do with a recorded trace, as CSV",
          "  ada-train replay --scaling configs/sweep/pytorch.yaml --trace overflows.csv\n"
          "  ada-train replay --scaling deepspeed.yaml --trace overflows.csv --set "
          "scaling.hysteresis=1");
  replay->add_option("--scaling", a->scaling, "a configuration, or its section `scaling` alone")
      ->type_name("FILE")
      ->required();
  replay
      ->add_option(
          "--trace", a->trace,
          "CSV with a column overflow (0 or 1); logmax: amax, the largest unscaled gradient")
      ->type_name("FILE")
      ->required();
  AddSet(*replay, a->set, "--set scaling.growth_interval=100");
  return {replay, [a] { return Replay(*a); }};
}

}  // namespace

Commands AddFileCommands(CLI::App& app) {
  return {AddInspect(app), AddConvert(app), AddReplay(app)};
}

}  // namespace ada::cli
