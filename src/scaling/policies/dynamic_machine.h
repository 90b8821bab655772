// What counts attempts and says when the scale of a dynamic preset moves: one interface, a class
// for each kind. Knows nothing of training.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scaling/policies/scale_arithmetic.h"

namespace ada::scaling {

// What a machine makes of one attempt. It comes with the present scale and the usual action.
struct Move {
  double scale;
  Action action;
  std::string reason, error;  // as in ScaleUpdate; a reason without a change is dropped
};

// A number that a machine remembers, and the range in which it makes sense.
struct Counter {
  const char* name;
  std::int64_t* value;
  std::int64_t least, most;
};

// Driven by DynamicPolicy: one call for each attempt, OnOverflow or OnClean, which changes `move`.
// The scale itself is the policy's; a machine holds counters alone, and what Counters names is its
// whole state.
class DynamicMachine {
 public:
  DynamicMachine(const DynamicParameters& parameters, const ScaleArithmetic& arithmetic)
      : parameters_(parameters), arithmetic_(arithmetic) {}
  virtual ~DynamicMachine() = default;

  virtual void OnOverflow(Move& move) = 0;
  // Whether an overflow at this scale is repaired (kSanitize) instead of skipped.
  virtual bool Repairs(double /*scale*/) const { return false; }
  virtual void OnClean(Move& move) = 0;
  // For saving and loading; the pointers are into the machine.
  virtual std::vector<Counter> Counters() = 0;

 protected:
  // At the floor the run ends, if it is to; elsewhere the scale falls.
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

}  // namespace ada::scaling
