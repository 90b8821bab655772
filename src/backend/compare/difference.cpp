// One line of text for a difference.
#include "backend/compare/difference.h"

#include "backend/compare/bounds.h"

namespace ada::backend::compare {

std::string ToString(const Difference& d, const std::string& first_name,
                     const std::string& second_name) {
  std::string text = "call " + std::to_string(d.call) + ", ";
  text += d.layer.empty() ? d.op : "layer " + d.layer + " (" + d.op + ")";
  text += ", " + d.phase;
  if (!d.tensor.empty()) text += ", " + d.tensor;
  text += ", " + d.what + ": " + first_name + " " + NumberText(d.first) + ", " + second_name + " " +
          NumberText(d.second);
  return text + " (allowed: " + d.allowed + ")";
}

}  // namespace ada::backend::compare
