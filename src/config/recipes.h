// The names of precision.recipe and of precision.optimizer_state, for commands that list or take
// them.
#pragma once
#include <string>
#include <vector>

namespace ada::config {

// A recipe and what it rounds: "te_mxfp8", then its operands and their source.
struct RecipeLine {
  std::string name, text;
};
// All of them but `none`, in the order of the page of keys.
std::vector<RecipeLine> Recipes();
// Layouts of the optimizer's states.
const std::vector<std::string>& StateLayouts();

}  // namespace ada::config
