// Configurations.
#include "config/load.h"
#include "fuzz/scratch.h"
#include "fuzz/targets.h"

namespace ada::fuzz {

void Yaml(std::string_view input) {
  Refusable([&] {
    config::Config config = config::LoadText(std::string(input), "fuzz.yaml", {}).config;
    const std::string written = config::ToYaml(config);
    const std::string again = config::ToYaml(config::LoadText(written, "written.yaml", {}).config);
    Demand(again == written, "a configuration that is written out reads back another one");
    config::FillDefaults(config);
    config::ToYaml(config);
  });
}

}  // namespace ada::fuzz
