// A dynamic preset: how its scale moves, and the state machine that decides when it moves.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scaling/policies/presets.h"

namespace ada::scaling {

// How the scale of one dynamic preset moves: its type, its factors, its bounds. When it moves is
// decided by the machines (below). Values are doubles that the scale's type (fp32 or double) holds
// exactly. Each machine and the policy have a copy; none changes.
class ScaleArithmetic {
 public:
  // `parameters` are resolved (presets.h).
  ScaleArithmetic(const DynamicParameters& parameters, const DynamicTraits& traits);

  double Start() const;
  double Lowered(double scale) const;
  double Raised(double scale) const;
  double Raised(double scale, double factor) const;  // with another factor than growth_factor
  double Clamped(double scale) const;                // to both bounds; if they cross, to the floor
  bool AtFloor(double scale) const { return scale == floor_; }
  double floor() const { return floor_; }  // 0: none
  // Whether such a scale can occur (type, 0, inf). For checking states that are loaded.
  bool Possible(double scale) const;

 private:
  double Typed(double value) const;   // rounded to the scale's type
  double Factor(double value) const;  // converted to the type of the factors

  DynamicTraits traits_;
  double start_, up_, down_;  // down_: the divisor if the original divides
  double floor_, ceiling_;
};

// A machine's decision on one attempt, initialized to the present scale and the usual action.
struct Move {
  double scale;
  Action action;
  std::string reason, error;  // as in ScaleUpdate; a reason without a change is dropped
};

// A number in the state of a machine, and the range of its valid values.
struct Counter {
  const char* name;
  std::int64_t* value;
  std::int64_t least, most;
};

// A state machine that counts attempts and decides when the scale of a dynamic preset moves: one
// interface, and a class for each kind. It knows nothing about training. DynamicPolicy drives it by
// one call for each attempt, OnOverflow or OnClean, which changes `move`. The policy holds the
// scale itself; a machine holds only counters, and those that Counters lists are its whole state.
class DynamicMachine {
 public:
  DynamicMachine(const DynamicParameters& parameters, const ScaleArithmetic& arithmetic)
      : parameters_(parameters), arithmetic_(arithmetic) {}
  virtual ~DynamicMachine() = default;

  virtual void OnOverflow(Move& move) = 0;
  // Whether an overflow at this scale is repaired (kSanitize) instead of skipped.
  virtual bool Repairs(double /*scale*/) const { return false; }
  virtual void OnClean(Move& move) = 0;
  // Whether its counters, as they were loaded, fit each other and this scale.
  virtual bool Fits(double /*scale*/) const { return true; }
  // For saving and loading; the pointers point into the machine.
  virtual std::vector<Counter> Counters() = 0;

 protected:
  // Lowers the scale or, at the floor and if the parameters say so, ends the run.
  void Lower(Move& move, std::string reason) const;
  void Raise(Move& move) const;

  DynamicParameters parameters_;
  ScaleArithmetic arithmetic_;
};

// The machine of `traits.kind`.
std::unique_ptr<DynamicMachine> MakeMachine(const DynamicParameters& parameters,
                                            const DynamicTraits& traits);
std::unique_ptr<DynamicMachine> MakeCounterMachine(const DynamicParameters&, const DynamicTraits&);
std::unique_ptr<DynamicMachine> MakeFairseqMachine(const DynamicParameters&, const DynamicTraits&);
std::unique_ptr<DynamicMachine> MakeCerebrasMachine(const DynamicParameters&, const DynamicTraits&);
std::unique_ptr<DynamicMachine> MakeChainerMachine(const DynamicParameters&, const DynamicTraits&);
std::unique_ptr<DynamicMachine> MakeMarianMachine(const DynamicParameters&, const DynamicTraits&);
std::unique_ptr<DynamicMachine> MakeGuidedMachine(const DynamicParameters&, const DynamicTraits&);
std::unique_ptr<DynamicMachine> MakeWindowListMachine(const DynamicParameters&,
                                                      const DynamicTraits&);

}  // namespace ada::scaling
