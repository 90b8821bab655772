// What each method of `adaptive` chooses for a layer of a file, through the rules that training
// calls.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "config/load.h"
#include "scaling/rules/rules.h"
#include "study/inspect/inspect_layers.h"

namespace ada::study {

struct MethodScale {
  std::string method;  // as in the YAML
  double fan = 1;
  scaling::ScaleDecision decision;
  bool nan_unbound = false;  // the authors' program goes on with this NaN (and fails)
};

// One decision a method, that of a layer's first backward pass: all methods, or the layer's own
// where the overrides name one. `fixed` only where a scale is set, exact_range where the file has a
// dx. `format` is that of dx and of the rounded w; `scale_in` is S of dy (and of dx).
std::vector<MethodScale> ScalesOf(const SafetensorsFile& file, const FileLayer& layer,
                                  const config::AdaptiveOverrides& adaptive,
                                  const NumberFormat& format, float scale_in);

inline constexpr char kScaleColumns[] =
    "layer,method,fan,scale_in,unbound,bound,pow2,alpha,scale_out,limit,error";
void WriteScaleRow(const std::string& layer, const MethodScale& scale, std::ostream& out);

// The fields of a row behind scale_in, empty where a stage was not taken: unbound, bound, pow2,
// alpha, scale_out, limit, error; numbers by `number`, scales by `exact`.
struct StageTexts {
  std::string unbound, bound, pow2, alpha, scale_out, limit, error;
};
StageTexts TextsOf(const MethodScale& scale, std::string (*number)(double),
                   std::string (*exact)(double));

}  // namespace ada::study
