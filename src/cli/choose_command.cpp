// choose: which format to train in.
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "cli/shares.h"
#include "error.h"
#include "study/commands.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

// The budget is a text, since it may end in a percent sign.
struct ChooseArguments : ConfigArguments {
  std::string file, budget = "1%";
  std::vector<std::string> formats;
  study::ChooseOptions options;
};

int Choose(ChooseArguments& a) {
  if (a.config.empty()) RequireOperand(a.file, a.set, "CONFIG", "choose");
  TakeFile(a, a.file);
  study::ChooseOptions& options = a.options;
  options.formats = WholeFormats(a.formats);
  options.budget = ShareOf("--budget", a.budget);
  Checked(options.seeds, 1, 64, "--seeds", "a whole number, 1 to 64");
  Checked(static_cast<double>(options.steps), 0, 1e9, "--steps", "a whole number from 1 on");
  Checked(options.jobs, 0, 1024, "--jobs", "a whole number, 1 to 1024");
  // It finds the file, which may be a shipped one; arms are laid over it later.
  ConfigOf(a);
  options.config = a.config;
  options.keys = OverridesOf(a.set);
  for (const config::Override& key : options.keys)
    if (key.first == "output" || key.first == "name" || key.first == "train.max_steps")
      throw ConfigError("--set " + key.first + ": choose itself sets it (--out, --steps)");
  telemetry::Log log;
  return study::Choose(options, std::cout, log);
}

}  // namespace

Commands AddChooseCommands(CLI::App& app) {
  auto a = std::make_shared<ChooseArguments>();
  CLI::App* choose =
      Add(app, "choose", "which format, recipe or policy to train in: trains them all, and says",
          "  ada-train choose configs/gpt2_jargon_quick.yaml --formats bf16,te_mxfp8 --seeds 1\n"
          "  ada-train choose mine.yaml --formats fp16+dynamic,te_fp8_current --seeds 1 --html");
  choose->add_option("CONFIG", a->file, "the experiment (YAML or JSON)")->type_name("");
  choose->add_option("-c,--config", a->config, "the same as CONFIG")->type_name("FILE");
  choose
      ->add_option("--formats", a->formats,
                   "the arms: formats, recipes, either with +POLICY or +STATE, or files of keys "
                   "(.yaml) that "
                   "are laid over CONFIG")
      ->type_name("ARM,ARM")
      ->delimiter(',')
      ->allow_extra_args(false)  // CONFIG may come after it
      ->required();
  study::ChooseOptions& options = a->options;
  choose->add_option("--baseline", options.baseline, "the arm of which others are told (fp32)")
      ->type_name("ARM");
  choose->add_option("--seeds", options.seeds, "trainings of each arm (3)")->type_name("N");
  choose->add_option("--steps", options.steps, "of each training (default: CONFIG's)")
      ->type_name("N");
  choose->add_option("-j,--jobs", options.jobs, "trainings at a time (default: one per core)")
      ->type_name("J");
  choose
      ->add_option("--budget", a->budget,
                   "by how much of the baseline's loss an arm may be worse (1%)")
      ->type_name("SHARE");
  choose
      ->add_option("--out", options.out,
                   "the folder of all runs; the same command goes on in it (default: choices/NAME)")
      ->type_name("FOLDER");
  AddJson(*choose, options.json);
  choose->add_flag("--html", options.html, "a page as well, FOLDER/choose.html");
  AddOverrides(*choose, *a, {DataOptions().front(), MachineOptions().front()});
  return {{choose, [a] { return Choose(*a); }}};
}

}  // namespace ada::cli
