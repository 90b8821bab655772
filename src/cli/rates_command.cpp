// rates: the learning rate of each step, without data.
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command_line.h"
#include "cli/config_options.h"
#include "config/load.h"
#include "error.h"
#include "run/plan/plan_reports.h"

namespace ada::cli {
namespace {

// `every` is the distance of rows in steps.
struct RatesArguments : ConfigArguments {
  std::string file;
  std::optional<std::int64_t> steps_per_epoch;  // unset: those of the data set
  std::int64_t every = 1;
};

// With --steps-per-epoch no data set is opened, so rates can be printed on any machine.
int Rates(RatesArguments& a) {
  if (a.config.empty()) RequireOperand(a.file, a.set, "FILE", "rates");
  TakeFile(a, a.file);
  // With the most epochs that a run can have, steps are still counted in 64 bits.
  constexpr std::int64_t kMostStepsOfEpoch = 1'000'000'000'000;
  const std::int64_t asked = a.steps_per_epoch.value_or(1);
  if (asked < 1 || asked > kMostStepsOfEpoch || a.every < 1)
    throw ConfigError(
        "--steps-per-epoch and --every: expected whole numbers from 1, steps of an epoch up to "
        "1000000000000");
  run::PrintRates(ConfigOf(a), a.steps_per_epoch.value_or(0), a.every, std::cout);
  return 0;
}

}  // namespace

// The rates are those of a run with this configuration that skips no step.
Commands AddRatesCommands(CLI::App& app) {
  auto a = std::make_shared<RatesArguments>();
  CLI::App* rates =
      Add(app, "rates", "the learning rate of each step, as CSV",
          "  ada-train rates configs/resnet20_cifar.yaml --steps-per-epoch 390 --every 390\n"
          "  ada-train rates a.yaml --set schedule.kind=one_cycle");
  rates->add_option("FILE", a->file, "the experiment (YAML or JSON)")->type_name("");
  rates->add_option("-c,--config", a->config, "the same as FILE")->type_name("FILE");
  rates
      ->add_option("--steps-per-epoch", a->steps_per_epoch,
                   "instead of what the data set gives, which is then not looked at")
      ->type_name("N");
  rates->add_option("--every", a->every, "steps between two rows; the last has one")
      ->type_name("N");
  AddOverrides(*rates, *a, {});
  return {{rates, [a] { return Rates(*a); }}};
}

}  // namespace ada::cli
