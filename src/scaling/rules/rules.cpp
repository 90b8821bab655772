// Names of limits (as in scales.csv) and methods (as in the YAML), texts of errors.
#include "scaling/rules/rules.h"

#include <string>

#include "error.h"

namespace ada::scaling {

const char* LimitName(Limit limit) {
  switch (limit) {
    case Limit::kNone:
      return "none";
    case Limit::kTarget:
      return "target";
    case Limit::kOne:
      return "one";
    case Limit::kCap:
      return "cap";
    case Limit::kScaleBound:
      return "SB";
    case Limit::kAccumBound:
      return "AB";
    case Limit::kStale:
      return "stale";
    case Limit::kFixed:
      return "fixed";
    case Limit::kState:
      return "state";
    case Limit::kNonfinite:
      return "nonfinite";
    case Limit::kBranch:
      return "branch";
  }
  throw InternalError("LimitName: unknown limit " + std::to_string(static_cast<int>(limit)));
}

const char* MethodName(LayerMethod method) {
  switch (method) {
    case LayerMethod::kPass:
      return "none";
    case LayerMethod::kFixed:
      return "fixed";
    case LayerMethod::kApproxRange:
      return "approx_range";
    case LayerMethod::kLognormal:
      return "lognormal";
    case LayerMethod::kAbsRange:
      return "abs_range";
    case LayerMethod::kElementWiseRange:
      return "element_wise_range";
    case LayerMethod::kExactRange:
      return "exact_range";
    case LayerMethod::kState:
      return "state";
  }
  throw InternalError("MethodName: unknown method " + std::to_string(static_cast<int>(method)));
}

const char* DecisionErrorText(DecisionError error) {
  switch (error) {
    case DecisionError::kNone:
      return "";
    case DecisionError::kNonfinite:
      return "the gradient, the weight or the scale computed from them is not finite: the authors' "
             "program raises ValueError";
    case DecisionError::kNoProduct:
      return "element_wise_range: no product of gradient and weight is other than zero: the "
             "authors' program raises RuntimeError";
    case DecisionError::kNeedsWeight:
      return "abs_range and element_wise_range need a layer with a weight in the authors' program";
    case DecisionError::kAlphaNotFinite:
      return "alpha or the scale of the result is not finite in the authors' number format: their "
             "program raises AssertionError";
    case DecisionError::kNoTarget:
      return "no common scale keeps the gradients of all branches within range: the authors' "
             "program raises ValueError";
  }
  throw InternalError("DecisionErrorText: unknown error " +
                      std::to_string(static_cast<int>(error)));
}

}  // namespace ada::scaling
