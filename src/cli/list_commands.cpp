// models, policies, formats, recipes, accumulators, datasets, schema: lists of what this version
// supports.
#include <iostream>
#include <memory>
#include <string>

#include "cli/command_line.h"
#include "cli/output.h"
#include "config/load.h"
#include "config/schema/schema.h"
#include "error.h"
#include "run/plan/plan_reports.h"
#include "study/commands.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

// run::List gives the lines; on a terminal they are wrapped (output.h).
Command AddList(CLI::App& app, const std::string& what) {
  const std::string examples = "  ada-train " + what + "\n  ada-train " + what + " --json";
  CLI::App* list =
      Add(app, what.c_str(), ("list the " + what + " of this version").c_str(), examples);
  auto json = std::make_shared<bool>(false);
  AddJson(*list, *json);
  return {list, [what, json] {
            PrintList(what, *json);
            return 0;
          }};
}

// Without options the command lists data sets; --preview and --check look at those of a
// configuration.
struct DatasetsArguments : ConfigArguments {
  std::string preview, check;
  bool csv = false, json = false;
};

// Returns the exit code of study::CheckData, 3 where a file would end a run.
int CheckDatasets(DatasetsArguments& a) {
  if (!a.preview.empty() || (!a.config.empty() && a.config != a.check))
    throw ConfigError("--check: names the configuration by itself, without --preview and --config");
  a.config = a.check;
  const config::Config config = FilledConfigOf(a);
  telemetry::Log log;
  study::CheckDataOptions options;
  options.csv = a.csv;
  return study::CheckData(config, options, std::cout, log);
}

// Options that belong together are refused one without the other.
int Datasets(DatasetsArguments& a) {
  const bool only_lists = a.check.empty() && a.preview.empty() && a.config.empty() && a.set.empty();
  if (a.json && !only_lists) throw ConfigError("--json: of the list alone; leave out the rest");
  if (!a.check.empty()) return CheckDatasets(a);
  if (a.csv) throw ConfigError("--csv: goes with --check");
  if (only_lists) {
    PrintList("datasets", a.json);
    return 0;
  }
  if (a.preview.empty() || a.config.empty())
    throw ConfigError(
        "--preview and --config belong together: ada-train datasets --preview FILE.png --config "
        "FILE");
  const config::Config config = FilledConfigOf(a);
  // The sheet must not replace the configuration or the data that it is made of.
  OutputPaths paths;
  paths.Read("--config", a.config);
  paths.ReadConfig(config);
  paths.Write("--preview", a.preview);
  paths.Check();
  const TerminalText visible(std::cout);
  run::Preview(config, a.preview, std::cout);
  return 0;
}

// Without options a list, as the other commands of this file; with some it looks at the data of one
// configuration.
Command AddDatasets(CLI::App& app) {
  auto a = std::make_shared<DatasetsArguments>();
  CLI::App* datasets =
      Add(app, "datasets", "list the datasets of this version; show or check a run's images",
          "  ada-train datasets --check mine.yaml --csv > faults.csv\n"
          "  ada-train datasets --preview sheet.png --config configs/resnet20_cifar.yaml");
  AddValue(*datasets, "--preview", a->preview, "FILE.png",
           "write a sheet of the first training batch, augmented, with its labels");
  AddValue(*datasets, "--check", a->check, "FILE",
           "look through all files of all splits of this experiment: what cannot be\n"
           "read, is cut, of another size, 16-bit, turned by EXIF, in two splits ...;\n"
           "exit code 3 where a file would end a run");
  datasets->add_flag("--csv", a->csv, "of --check: split,kind,ends_run,file,message");
  AddJson(*datasets, a->json);
  AddValue(*datasets, "-c,--config", a->config, "FILE", "the experiment (YAML or JSON)");
  AddOverrides(*datasets, *a, DataOptions());
  return {datasets, [a] { return Datasets(*a); }};
}

// Made of the tables by which configurations are read.
Command AddSchema(CLI::App& app) {
  auto markdown = std::make_shared<bool>(false);
  CLI::App* schema = Add(app, "schema", "a JSON Schema of the YAML, for editors",
                         "  ada-train schema > ada-train.schema.json\n"
                         "  ada-train schema --markdown | less");
  schema->add_flag("--markdown", *markdown, "every key as a page to read, configs/KEYS.md");
  return {schema, [markdown] {
            std::cout << (*markdown ? config::KeysMarkdown() : config::JsonSchema());
            return 0;
          }};
}

}  // namespace

Commands AddListCommands(CLI::App& app) {
  Commands commands;
  for (const char* what : {"models", "policies", "formats", "recipes", "accumulators"})
    commands.push_back(AddList(app, what));
  commands.push_back(AddDatasets(app));
  commands.push_back(AddSchema(app));
  return commands;
}

}  // namespace ada::cli
