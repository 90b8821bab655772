// The command line: parse, call, turn errors into exit codes. Nothing else catches.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "config/load.h"
#include "core/error.h"
#include "telemetry/log.h"
#include "train/run.h"

namespace {

struct Arguments {
  std::string config, output, name, device, checkpoint, log_level = "info";
  std::vector<std::string> set;
  int threads = -1;
  bool resume = false, overwrite = false, dry_run = false, print_config = false;
  bool quiet = false, verbose = false, no_progress = false;
};

void AddConfigOptions(CLI::App& app, Arguments& a) {
  app.add_option("--config", a.config, "the experiment (YAML or JSON)")->type_name("FILE");
  app.add_option("--set", a.set,
                 "override a key: --set scaling.policy=fixed --set scaling.scale=1024")
      ->type_name("KEY=VALUE")
      ->expected(1, -1);
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

int Train(const Arguments& a) {
  if (a.config.empty())
    throw ada::ConfigError("--config FILE is missing; `ada-train --help` shows examples");
  ada::telemetry::Log log(LevelOf(a));
  const ada::config::Loaded loaded = ada::config::Load(a.config, OverridesOf(a));
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
  const ada::config::Loaded loaded =
      a.config.empty() ? ada::config::LoadText(ada::train::CheckpointConfig(a.checkpoint),
                                               a.checkpoint + " (config)", OverridesOf(a))
                       : ada::config::Load(a.config, OverridesOf(a));
  ada::train::Evaluate(loaded.config, a.checkpoint, std::cout);
  return 0;
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

  CLI::App* train = app.add_subcommand("train", "train (the same as giving no command)");
  AddTrainOptions(*train, a);
  train->footer(
      "Examples:\n"
      "  ada-train train --config configs/resnet20_cifar.yaml --resume\n"
      "  ada-train train --config configs/resnet20_cifar.yaml --dry-run");
  CLI::App* evaluate =
      app.add_subcommand("evaluate", "loss, top-1 and top-5 of a checkpoint, as CSV");
  AddConfigOptions(*evaluate, a);
  evaluate->add_option("--checkpoint", a.checkpoint, "either file of a checkpoint")
      ->type_name("FILE")
      ->required();
  evaluate->footer(
      "Examples:\n"
      "  ada-train evaluate --checkpoint runs/fashion_quickstart/checkpoints/best.safetensors\n"
      "  ada-train evaluate --checkpoint runs/a/checkpoints/step-00001950.json --set "
      "data.path=/data/cifar-10");
  for (const char* what : {"models", "policies", "formats", "datasets"}) {
    CLI::App* list = app.add_subcommand(what, std::string("list the ") + what + " of this version");
    list->footer(std::string("Examples:\n  ada-train ") + what + "\n  ada-train " + what +
                 " | sort");
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
  if (evaluate->parsed()) return Evaluate(a);
  for (const CLI::App* command : app.get_subcommands()) {
    if (command == train) continue;
    for (const std::string& line : ada::train::List(command->get_name())) std::cout << line << '\n';
    return 0;
  }
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
