// Common parts of the C interface: the objects behind its handles, texts that outlive a call, and
// the conversion of exceptions to statuses. Objects behind handles belong to the caller, who frees
// them with the function for their kind. Using a handle that is null, or was freed, is an error of
// the caller that is not detected.
#pragma once
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "c_api/ada_scaling.h"
#include "scaling/policies/policies.h"
#include "scaling/rules/state_text.h"

// Made by ada_policy_new. `policy` is the very class that a training drives, so its transitions are
// the same. The section as text is kept, since writing it needs settings that are not const.
struct ada_policy {
  ada::scaling::Settings settings;  // filled in
  std::string section;              // the same as YAML
  std::unique_ptr<ada::scaling::Policy> policy;
};

// Made by ada_layer_new from a policy, of which it needs nothing afterwards: the rule is copied.
// The name is for messages about a state that does not fit.
struct ada_layer {
  ada::scaling::LayerScaler scaler;
  std::string name;
};

namespace ada::c_api {

// Keeps a text for the caller, until the same thread's next one.
// One text for each thread: a caller that needs two of them copies the first.
const char* Kept(std::string text);
// Sets the text of ada_error(). Called when a function is about to return a failure; a success
// leaves the old text.
void SetError(std::string text);

// A state as an object of texts in JSON, and back. Throws DataError where the text is none.
// A state is a map of names to texts that read back exactly (scaling/rules/state_text.h).
std::string ToJson(const scaling::StateMap& state);
scaling::StateMap OfJson(const char* text);

// `call()`; where it throws, `failed`, and ada_error() has the message.
// No exception may pass a C interface. Only functions that make no text and look up no name, which
// may ask for memory, do without it.
template <class Call, class Result>
Result Guarded(Result failed, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    SetError(error.what());
    return failed;
  }
}

}  // namespace ada::c_api
