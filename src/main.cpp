// The command line: parse, call, turn errors into exit codes. Nothing else catches.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "core/error.h"
#include "telemetry/log.h"
#include "train/convert.h"
#include "train/inspect.h"
#include "train/replay.h"
#include "train/run.h"
#include "train/scaling_config.h"

namespace {

struct Arguments {
  std::string config, output, name, device, checkpoint, log_level = "info";
  std::string file, to, tensors = "*", format = "fp16", csv = "text", scaling, trace;
  std::vector<std::string> set;
  std::optional<double> scale_in;
  double scale = 1;
  int threads = -1;
  bool resume = false, overwrite = false, dry_run = false, print_config = false;
  bool quiet = false, verbose = false, no_progress = false;
};

void AddSet(CLI::App& app, Arguments& a, const char* example) {
  app.add_option("--set", a.set, std::string("override a key: ") + example)
      ->type_name("KEY=VALUE")
      ->expected(1, -1);
}

void AddFormat(CLI::App& app, Arguments& a, const std::string& what) {
  app.add_option("--format", a.format, what + "; a name or '{exponent: 4, mantissa: 3}'")
      ->type_name("FORMAT");
}

void AddConfigOptions(CLI::App& app, Arguments& a) {
  app.add_option("--config", a.config, "the experiment (YAML or JSON)")->type_name("FILE");
  AddSet(app, a, "--set scaling.policy=fixed --set scaling.scale=1024");
  app.add_option("--device", a.device, "auto, cpu, cuda or cuda:1")->type_name("DEVICE");
  app.add_option("--threads", a.threads, "threads of the CPU backend; 0: one per core")
      ->type_name("N");
}

void AddTrainOptions(CLI::App& app, Arguments& a) {
  AddConfigOptions(app, a);
  app.add_option("--output", a.output, "the run's folder (default: runs/NAME)")->type_name("DIR");
  app.add_option("--name", a.name, "the run's name (default: the file's name)")->type_name("NAME");
  auto* resume =
      app.add_flag("--resume", a.resume, "go on from the newest good checkpoint, or start");
  app.add_flag("--overwrite", a.overwrite, "delete the old run in the folder first")
      ->excludes(resume);
  app.add_flag("--dry-run", a.dry_run,
               "check config and data, print layers and memory; train nothing");
  app.add_flag("--print-config", a.print_config, "print the resolved configuration and stop");
  app.add_flag("--quiet", a.quiet, "warnings and errors only");
  app.add_flag("--verbose", a.verbose, "what --log-level debug shows");
  app.add_flag("--no-progress", a.no_progress, "no progress line");
  app.add_option("--log-level", a.log_level, "trace, debug, info, warning or error")
      ->type_name("LEVEL");
}

// --set in its order, then the options that are short for a key.
ada::config::Overrides OverridesOf(const Arguments& a) {
  ada::config::Overrides overrides;
  for (const std::string& item : a.set) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ada::ConfigError("--set " + item +
                             ": expected KEY=VALUE, for example --set scaling.scale=1024");
    overrides.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  if (!a.name.empty()) overrides.emplace_back("name", ada::config::YamlText(a.name));
  if (!a.output.empty()) overrides.emplace_back("output", ada::config::YamlText(a.output));
  if (!a.device.empty()) overrides.emplace_back("device.kind", ada::config::YamlText(a.device));
  if (a.threads >= 0) overrides.emplace_back("device.threads", std::to_string(a.threads));
  return overrides;
}

ada::telemetry::LogLevel LevelOf(const Arguments& a) {
  if (a.quiet) return ada::telemetry::LogLevel::kWarning;
  if (a.verbose) return ada::telemetry::LogLevel::kDebug;
  return ada::telemetry::ParseLogLevel(a.log_level);
}

void Note(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "ada-train: %s\n", note.c_str());
}

int Train(const Arguments& a) {
  if (a.config.empty())
    throw ada::ConfigError("--config FILE is missing; `ada-train --help` shows examples");
  ada::telemetry::Log log(LevelOf(a));
  ada::config::Loaded loaded = ada::config::Load(a.config, OverridesOf(a));
  ada::train::FillDefaults(loaded.config);
  for (const std::string& note : loaded.notes) log.Info(note);
  if (a.print_config) {
    std::cout << ada::config::ToYaml(loaded.config);
    return 0;
  }
  if (a.dry_run) {
    ada::train::DryRun(loaded.config, std::cout);
    return 0;
  }
  return ada::train::Train(loaded.config, {a.resume, a.overwrite, !a.no_progress && !a.quiet}, log);
}

int Evaluate(const Arguments& a) {
  ada::config::Loaded loaded =
      a.config.empty() ? ada::config::LoadText(ada::train::CheckpointConfig(a.checkpoint),
                                               a.checkpoint + " (config)", OverridesOf(a))
                       : ada::config::Load(a.config, OverridesOf(a));
  ada::train::FillDefaults(loaded.config);
  ada::train::Evaluate(loaded.config, a.checkpoint, std::cout);
  return 0;
}

int Inspect(Arguments a) {
  // --set takes all that follows it: what is no KEY=VALUE is the file.
  const auto file = std::find_if(a.set.begin(), a.set.end(), [](const std::string& item) {
    return item.find('=') == std::string::npos;
  });
  if (a.file.empty() && file != a.set.end()) {
    a.file = *file;
    a.set.erase(file);
  }
  if (a.file.empty())
    throw ada::ConfigError("FILE is missing; `ada-train inspect --help` shows examples");
  ada::train::InspectOptions options;
  options.path = a.file;
  options.tensors = a.tensors;
  options.format = ada::config::ReadFormat(a.format);
  options.scale_in = a.scale_in;
  options.overrides = OverridesOf(a);
  options.output = ada::train::ParseInspectOutput(a.csv);
  ada::train::Inspect(options, std::cout, std::cerr);
  return 0;
}

int Convert(const Arguments& a) {
  ada::train::Convert(a.file, a.to, ada::config::ReadFormat(a.format), a.scale);
  return 0;
}

int Replay(const Arguments& a) {
  ada::config::LoadedScaling loaded = ada::config::LoadScaling(a.scaling, OverridesOf(a));
  ada::train::FillScalingDefaults(loaded.scaling, loaded.train);
  Note(loaded.notes);
  const auto policy = ada::train::MakePolicy(loaded.scaling);
  ada::train::Replay(*policy, ada::train::MaxRetries(loaded.train), a.trace, std::cout);
  return 0;
}

int List(const std::string& what) {
  for (const std::string& line : ada::train::List(what)) std::cout << line << '\n';
  return 0;
}

// A command of the command line: its options are declared, `run` comes after parsing.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

CLI::App* Add(CLI::App& app, const char* name, const char* what, const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer("Examples:\n" + examples);
  return command;
}

Command AddTrain(CLI::App& app, Arguments& a) {
  CLI::App* train = Add(app, "train", "train (the same as giving no command)",
                        "  ada-train train --config configs/resnet20_cifar.yaml --resume\n"
                        "  ada-train train --config configs/resnet20_cifar.yaml --dry-run");
  AddTrainOptions(*train, a);
  return {train, [&a] { return Train(a); }};
}

Command AddEvaluate(CLI::App& app, Arguments& a) {
  CLI::App* evaluate =
      Add(app, "evaluate", "loss, top-1 and top-5 of a checkpoint, as CSV",
          "  ada-train evaluate --checkpoint runs/fashion_quickstart/checkpoints/best.safetensors\n"
          "  ada-train evaluate --checkpoint runs/a/checkpoints/step-00001950.json --set "
          "data.path=/data/cifar-10");
  AddConfigOptions(*evaluate, a);
  evaluate->add_option("--checkpoint", a.checkpoint, "either file of a checkpoint")
      ->type_name("FILE")
      ->required();
  return {evaluate, [&a] { return Evaluate(a); }};
}

Command AddInspect(CLI::App& app, Arguments& a) {
  CLI::App* inspect =
      Add(app, "inspect", "what a format keeps of a file's tensors, what adaptive would choose",
          "  ada-train inspect gradients.safetensors --tensors '*.dy' --format fp8_e5m2\n"
          "  ada-train inspect gradients.safetensors --csv scales --scale-in 1024 --set "
          "scaling.underflow_target=1e-4");
  inspect
      ->add_option("FILE", a.file,
                   "a safetensors file, from any framework; layers:\n"
                   "NAME.dy with NAME.w (2 dimensions: linear, more: convolution) or without\n"
                   "(a cast), for method exact_range with NAME.dx")
      ->type_name("");
  inspect->add_option("--tensors", a.tensors, "glob: only these; layers by the name of their dy")
      ->type_name("GLOB");
  AddFormat(*inspect, a, "of all that is rounded, NAME.w before it is multiplied as well (fp16)");
  inspect
      ->add_option(
          "--scale-in", a.scale_in,
          "S that NAME.dy and NAME.dx carry (default: scaling.init_scale, 1): their values "
          "are\nrounded as they are, their extremes and moments shown without S")
      ->type_name("S");
  AddSet(*inspect, a, "--set scaling.method=abs_range (one method), any key of policy adaptive");
  inspect->add_option("--csv", a.csv, "counts or scales: a table for programs")->type_name("WHAT");
  return {inspect, [&a] { return Inspect(a); }};
}

Command AddConvert(CLI::App& app, Arguments& a) {
  CLI::App* convert = Add(
      app, "convert", "write what a format keeps: every float tensor rounded, as F32",
      "  ada-train convert weights.safetensors rounded.safetensors --format fp8_e4m3\n"
      "  ada-train convert gradients.safetensors scaled.safetensors --format fp16 --scale 1024");
  convert->add_option("IN", a.file, "a safetensors file")->type_name("")->required();
  convert->add_option("OUT", a.to, "what is written (may be IN)")->type_name("")->required();
  AddFormat(*convert, a, "what is kept");
  convert->get_option("--format")->required();
  convert
      ->add_option("--scale", a.scale, "factor before rounding (default 1); it stays in the file")
      ->type_name("S");
  return {convert, [&a] { return Convert(a); }};
}

Command AddReplay(CLI::App& app, Arguments& a) {
  CLI::App* replay =
      Add(app, "replay", "what a global policy would do with a recorded trace, as CSV",
          "  ada-train replay --scaling configs/sweep/pytorch.yaml --trace overflows.csv\n"
          "  ada-train replay --scaling deepspeed.yaml --trace overflows.csv --set "
          "scaling.hysteresis=1");
  replay->add_option("--scaling", a.scaling, "a configuration, or its section `scaling` alone")
      ->type_name("FILE")
      ->required();
  replay
      ->add_option(
          "--trace", a.trace,
          "CSV with a column overflow (0 or 1); logmax: amax, the largest unscaled gradient")
      ->type_name("FILE")
      ->required();
  AddSet(*replay, a, "--set scaling.growth_interval=100");
  return {replay, [&a] { return Replay(a); }};
}

int Dispatch(int argc, char** argv) {
  Arguments a;
  bool version = false;
  CLI::App app(
      "Trains neural networks in emulated low precision and shows, layer by layer, what the "
      "number\n"
      "format and the loss-scaling policy do.");
  app.footer(
      "Examples:\n"
      "  ada-train --config configs/fashion_quickstart.yaml\n"
      "  ada-train --config configs/resnet20_cifar_quick.yaml --set scaling.policy=fixed --set "
      "scaling.scale=1024 "
      "--name fixed1024");
  app.require_subcommand(0, 1);
  app.add_flag("--version", version, "version, commit, compiler, backends and libraries");
  AddTrainOptions(app, a);
  std::vector<Command> commands = {AddTrain(app, a), AddEvaluate(app, a), AddInspect(app, a),
                                   AddConvert(app, a), AddReplay(app, a)};
  for (const std::string what : {"models", "policies", "formats", "datasets"}) {
    const std::string examples = "  ada-train " + what + "\n  ada-train " + what + " | sort";
    commands.push_back(
        {Add(app, what.c_str(), ("list the " + what + " of this version").c_str(), examples),
         [what] { return List(what); }});
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e, std::cout, std::cerr) == 0 ? 0 : 2;
  }
  if (version) {
    for (const ada::train::Version& v : ada::train::Versions())
      std::cout << v.name << ' ' << v.value << '\n';
    return 0;
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return command.run();
  return Train(a);
}

int Fail(int code, const std::string& message) {
  std::fprintf(stderr, "ada-train: %s\n", message.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = Dispatch(argc, argv);
    if (!std::cout.flush()) throw ada::OutputError("standard output cannot be written");
    return code;
  } catch (const ada::InternalError& e) {
    return Fail(e.exit_code(), std::string("internal error: ") + e.what() + "; please report this");
  } catch (const ada::Error& e) {
    return Fail(e.exit_code(), e.what());
  } catch (const std::bad_alloc&) {
    return Fail(4, "out of memory; a smaller data.batch_size, or train.accumulate, helps");
  } catch (const std::exception& e) {
    return Fail(70, std::string("internal error: ") + e.what() + "; please report this");
  }
}
