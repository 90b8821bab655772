// The two texts that a thread has, states as JSON, and the version of the interface.
#include "c_api/handles.h"

#include <nlohmann/json.hpp>

#include "c_api/ada_scaling.h"
#include "error.h"
#include "io/json_file.h"

namespace ada::c_api {
namespace {

// Apart, so that asking for the error does not end the life of a text that was returned before.
thread_local std::string kept_text;
thread_local std::string error_text;

}  // namespace

const char* Kept(std::string text) {
  kept_text = std::move(text);
  return kept_text.c_str();
}

void SetError(std::string text) { error_text = std::move(text); }

std::string ToJson(const scaling::StateMap& state) { return nlohmann::json(state).dump(); }

// What is no object has no items, or items that are no texts.
scaling::StateMap OfJson(const char* text) {
  scaling::StateMap state;
  const nlohmann::json object = ParseJson("scaling state", text);
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) throw DataError("scaling state: " + key + ": expected a text");
    state[key] = value.get<std::string>();
  }
  return state;
}

}  // namespace ada::c_api

int32_t ada_interface(void) { return ADA_INTERFACE; }
const char* ada_error(void) { return ada::c_api::error_text.c_str(); }
