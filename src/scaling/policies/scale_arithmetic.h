// How the scale of one dynamic preset moves: its type, its factors, its bounds. When it moves is
// the machines' business (dynamic_machine.h).
#pragma once
#include "scaling/policies/presets.h"

namespace ada::scaling {

// Values are doubles that the scale's type (fp32 or double) holds exactly. Each machine and the
// policy have a copy; none changes.
class ScaleArithmetic {
 public:
  // `parameters` are resolved (presets.h).
  ScaleArithmetic(const DynamicParameters& parameters, const DynamicTraits& traits);

  double Start() const;
  double Lowered(double scale) const;
  double Raised(double scale) const;
  double Raised(double scale, double factor) const;  // by another factor than growth_factor
  double Clamped(double scale) const;                // to both bounds; the floor wins
  bool AtFloor(double scale) const { return scale == floor_; }
  double floor() const { return floor_; }  // 0: none
  // Whether a scale can come about: its type, 0, inf. For states that are read back.
  bool Possible(double scale) const;

 private:
  double Typed(double value) const;   // rounded to the scale's type
  double Factor(double value) const;  // to the type that the factors have

  DynamicTraits traits_;
  double start_, up_, down_;  // down_: the divisor where the original divides
  double floor_, ceiling_;
};

}  // namespace ada::scaling
