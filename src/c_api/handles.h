// What the functions of the C interface have in common: what stands behind its handles, texts that
// outlive a call, and exceptions that become statuses.
#pragma once
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "c_api/ada_scaling.h"
#include "scaling/policies/policies.h"
#include "scaling/rules/state_text.h"

struct ada_policy {
  ada::scaling::Settings settings;  // filled in
  std::string section;              // the same as YAML
  std::unique_ptr<ada::scaling::Policy> policy;
};

struct ada_layer {
  ada::scaling::LayerScaler scaler;
  std::string name;
};

namespace ada::c_api {

// Keeps a text for the caller, until the same thread's next one.
const char* Kept(std::string text);
// What ada_error() says from now on.
void SetError(std::string text);

// A state as an object of texts in JSON, and back. Throws DataError where the text is none.
std::string ToJson(const scaling::StateMap& state);
scaling::StateMap OfJson(const char* text);

// `call()`; where it throws, `failed`, and ada_error() has the message.
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
