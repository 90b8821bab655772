// The lists that the command line offers.
#include "core/error.h"
#include "core/text.h"
#include "data/dataset.h"
#include "graph/network/zoo.h"
#include "scaling/policies/presets.h"
#include "train/run.h"

namespace ada::train {
namespace {

std::vector<std::string> ListFormats() {
  std::vector<std::string> lines;
  for (const NamedFormat& f : NamedFormats())
    lines.push_back(std::string(f.name) + ": " + std::to_string(f.format.exponent_bits) +
                    " exponent and " + std::to_string(f.format.mantissa_bits) +
                    " mantissa bits, bias " + std::to_string(f.format.bias) + ", largest " +
                    NineDigits(f.format.largest()) + ", smallest normal " +
                    NineDigits(f.format.smallest_normal()) + ", smallest subnormal " +
                    NineDigits(f.format.smallest_subnormal()) + "; beyond the largest: " +
                    (f.format.saturate || !f.format.has_nan ? "it saturates"
                     : f.format.has_inf                     ? "inf"
                                                            : "NaN"));
  return lines;
}

}  // namespace

std::vector<std::string> List(const std::string& what) {
  if (what == "models") return graph::ListModels();
  if (what == "policies") return scaling::ListPolicies();
  if (what == "formats") return ListFormats();
  if (what == "datasets") return data::ListDatasets();
  throw InternalError("no list of " + what);
}

}  // namespace ada::train
