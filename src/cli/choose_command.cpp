// choose, ablate: which format to train in, and what each ingredient of a recipe does.
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "error.h"
#include "study/commands.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

struct TrainingsArguments : ConfigArguments {
  std::string file;
};

// The budget is a text, since it may end in a percent sign.
struct ChooseArguments : TrainingsArguments {
  std::string budget = "1%";
  std::vector<std::string> formats;
  study::ChooseOptions options;
};
struct AblateArguments : TrainingsArguments {
  study::AblateOptions options;
};

// Checks what both commands have, and finds the file, which may be a shipped one.
void TakeTrainings(TrainingsArguments& a, study::ArmsOptions& options, const std::string& command) {
  if (a.config.empty()) RequireOperand(a.file, a.set, "CONFIG", command);
  TakeFile(a, a.file);
  Checked(options.seeds, 1, 64, "--seeds", "a whole number, 1 to 64");
  Checked(static_cast<double>(options.steps), 0, 1e9, "--steps", "a whole number from 1 on");
  Checked(options.jobs, 0, 1024, "--jobs", "a whole number, 1 to 1024");
  ConfigOf(a);  // arms are laid over it later
  options.config = a.config;
  options.keys = OverridesOf(a.set);
  for (const config::Override& key : options.keys)
    if (key.first == "output" || key.first == "name" || key.first == "train.max_steps")
      throw ConfigError("--set " + key.first + ": " + command + " itself sets it (--out, --steps)");
}

int Choose(ChooseArguments& a) {
  a.options.formats = WholeFormats(a.formats);
  a.options.budget = ShareOf("--budget", a.budget);
  TakeTrainings(a, a.options, "choose");
  telemetry::Log log;
  return study::Choose(a.options, std::cout, log);
}

int Ablate(AblateArguments& a) {
  TakeTrainings(a, a.options, "ablate");
  telemetry::Log log;
  return study::Ablate(a.options, std::cout, log);
}

// folder: where --out is by default.
void AddTrainings(CLI::App& command, TrainingsArguments& a, study::ArmsOptions& options,
                  const std::string& folder) {
  command.add_option("CONFIG", a.file, "the experiment (YAML or JSON)")->type_name("");
  command.add_option("-c,--config", a.config, "the same as CONFIG")->type_name("FILE");
  command.add_option("--seeds", options.seeds, "trainings of each arm (3)")->type_name("N");
  command.add_option("--steps", options.steps, "of each training (default: CONFIG's)")
      ->type_name("N");
  command.add_option("-j,--jobs", options.jobs, "trainings at a time (default: one per core)")
      ->type_name("J");
  command
      .add_option(
          "--out", options.out,
          "the folder of all runs; the same command goes on in it (default: " + folder + "/NAME)")
      ->type_name("FOLDER");
  AddJson(command, options.json);
  AddOverrides(command, a, {DataOptions().front(), MachineOptions().front()});
}

}  // namespace

Commands AddChooseCommands(CLI::App& app) {
  auto a = std::make_shared<ChooseArguments>();
  CLI::App* choose =
      Add(app, "choose", "which format, recipe or policy to train in: trains them all, and says",
          "  ada-train choose configs/gpt2_jargon_quick.yaml --formats bf16,te_mxfp8 --seeds 1\n"
          "  ada-train choose mine.yaml --formats fp16+dynamic,te_fp8_current --seeds 1 --html");
  AddTrainings(*choose, *a, a->options, "choices");
  choose
      ->add_option("--formats", a->formats,
                   "the arms: formats, recipes, either with +POLICY or +STATE, or files of keys "
                   "(.yaml) that "
                   "are laid over CONFIG")
      ->type_name("ARM,ARM")
      ->delimiter(',')
      ->allow_extra_args(false)  // CONFIG may come after it
      ->required();
  choose->add_option("--baseline", a->options.baseline, "the arm of which others are told (fp32)")
      ->type_name("ARM");
  choose
      ->add_option("--budget", a->budget,
                   "by how much of the baseline's loss an arm may be worse (1%)")
      ->type_name("SHARE");
  choose->add_flag("--html", a->options.html, "a page as well, FOLDER/choose.html");
  auto b = std::make_shared<AblateArguments>();
  CLI::App* ablate =
      Add(app, "ablate", "what each ingredient of a recipe does: trains with it alone and without",
          "  ada-train ablate configs/gpt2_jargon_quick.yaml --set precision.recipe=te_nvfp4\n"
          "  ada-train ablate mine.yaml --parts gradients,policy --seeds 1 --html");
  AddTrainings(*ablate, *b, b->options, "ablations");
  ablate
      ->add_option("--parts", b->options.parts,
                   "the ingredients to ask about (default: all); a wrong name lists them")
      ->type_name("NAME,NAME")
      ->delimiter(',')
      ->allow_extra_args(false);
  ablate->add_flag("--pairs", b->options.pairs,
                   "trains each two ingredients together as well, to see which do not add up");
  ablate->add_flag("--html", b->options.html, "a page as well, FOLDER/ablate.html");
  return {{choose, [a] { return Choose(*a); }}, {ablate, [b] { return Ablate(*b); }}};
}

}  // namespace ada::cli
