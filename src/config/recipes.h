// The names of precision.recipe, for commands that list or take them.
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

}  // namespace ada::config
