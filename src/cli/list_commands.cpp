// models, policies, formats, datasets, schema: what this version knows.
#include <iostream>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/output_paths.h"
#include "cli/shipped.h"
#include "cli/view.h"
#include "config/load.h"
#include "config/schema/schema.h"
#include "core/error.h"
#include "train/run.h"

namespace ada::cli {
namespace {

Command AddList(CLI::App& app, const std::string& what) {
  const std::string examples = "  ada-train " + what + "\n  ada-train " + what + " | sort";
  return {Add(app, what.c_str(), ("list the " + what + " of this version").c_str(), examples),
          [what] {
            PrintList(what);
            return 0;
          }};
}

struct DatasetsArguments : ConfigArguments {
  std::string preview;
};

int Datasets(DatasetsArguments& a) {
  if (a.preview.empty() && a.config.empty() && a.set.empty()) {
    PrintList("datasets");
    return 0;
  }
  if (a.preview.empty() || a.config.empty())
    throw ConfigError(
        "--preview and --config belong together: ada-train datasets --preview FILE.png --config "
        "FILE");
  config::Loaded loaded = LoadConfig(a);
  for (const std::string& note : loaded.notes) std::cerr << note << '\n';
  config::FillDefaults(loaded.config);
  OutputPaths paths;
  paths.Read("--config", a.config);
  paths.Read("data.path", loaded.config.data.path);
  paths.Write("--preview", a.preview);
  paths.Check();
  train::Preview(loaded.config, a.preview, std::cout);
  return 0;
}

Command AddDatasets(CLI::App& app) {
  auto a = std::make_shared<DatasetsArguments>();
  CLI::App* datasets =
      Add(app, "datasets", "list the datasets of this version, or show a run's images",
          "  ada-train datasets\n"
          "  ada-train datasets --preview sheet.png --config configs/resnet20_cifar.yaml");
  datasets
      ->add_option("--preview", a->preview,
                   "write a sheet of the first training batch, augmented, with its labels")
      ->type_name("FILE.png");
  datasets->add_option("-c,--config", a->config, "the experiment (YAML or JSON)")
      ->type_name("FILE");
  AddOverrides(*datasets, *a, DataOptions());
  return {datasets, [a] { return Datasets(*a); }};
}

Command AddSchema(CLI::App& app) {
  return {Add(app, "schema", "a JSON Schema of the YAML, for editors",
              "  ada-train schema > ada-train.schema.json\n"
              "  ada-train schema | less"),
          [] {
            std::cout << config::JsonSchema();
            return 0;
          }};
}

}  // namespace

Commands AddListCommands(CLI::App& app) {
  Commands commands;
  for (const char* what : {"models", "policies", "formats"}) commands.push_back(AddList(app, what));
  commands.push_back(AddDatasets(app));
  commands.push_back(AddSchema(app));
  return commands;
}

}  // namespace ada::cli
