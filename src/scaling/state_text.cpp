// to_chars and from_chars: exact and independent of the locale.
#include "scaling/state_text.h"

#include <charconv>
#include <cmath>

#include "core/error.h"

namespace ada::scaling {
namespace {

[[noreturn]] void BadValue(const std::string& key, const std::string& text, const char* expected) {
  throw DataError("scaling state: key '" + key + "' holds '" + text + "', expected " + expected +
                  "; the checkpoint is damaged or from another version: resume from an older one");
}

}  // namespace

std::string ToHex(double value) {
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, std::fabs(value), std::chars_format::hex);
  const std::string text(digits, end.ptr);
  return (std::signbit(value) ? "-" : "") + (std::isfinite(value) ? "0x" + text : text);
}

void ExpectKeys(const StateMap& state, std::string_view policy,
                std::initializer_list<std::string_view> keys) {
  const std::string who = "scaling state of '" + std::string(policy) + "': ";
  for (const std::string_view key : keys) {
    if (state.count(std::string(key)) == 0) {
      throw DataError(who + "key '" + std::string(key) +
                      "' is missing; was the run started with another policy?");
    }
  }
  for (const auto& [key, value] : state) {
    bool known = false;
    for (const std::string_view expected : keys) known = known || expected == key;
    if (!known) {
      throw DataError(who + "unknown key '" + key + "'; was the run started with another policy?");
    }
  }
}

double ReadHex(const StateMap& state, const std::string& key) {
  const std::string& text = state.at(key);
  std::string_view rest = text;
  const bool negative = rest.substr(0, 1) == "-";
  if (negative) rest.remove_prefix(1);
  if (rest.substr(0, 2) == "0x") rest.remove_prefix(2);
  double value = 0;
  const char* last = rest.data() + rest.size();
  const auto [end, failure] = std::from_chars(rest.data(), last, value, std::chars_format::hex);
  if (failure != std::errc() || end != last || rest.empty() || rest.front() == '-') {
    BadValue(key, text, "a hexadecimal number such as 0x1p+16");
  }
  return negative ? -value : value;
}

std::int64_t ReadInteger(const StateMap& state, const std::string& key) {
  const std::string& text = state.at(key);
  std::int64_t value = 0;
  const char* last = text.data() + text.size();
  const auto [end, failure] = std::from_chars(text.data(), last, value);
  if (failure != std::errc() || end != last) BadValue(key, text, "an integer");
  return value;
}

StateMap SaveLayerState(const LayerState& state) {
  return {{"unbound", ToHex(state.unbound)},
          {"limit", std::to_string(static_cast<int>(state.unbound_limit))},
          {"calls", std::to_string(state.calls)}};
}

LayerState LoadLayerState(const StateMap& state, const std::string& layer) {
  ExpectKeys(state, "layer " + layer, {"unbound", "limit", "calls"});
  LayerState loaded;
  loaded.unbound = ReadHex(state, "unbound");
  loaded.calls = ReadInteger(state, "calls");
  const std::int64_t limit = ReadInteger(state, "limit");
  if (limit < 0 || limit > static_cast<int>(Limit::kBranch)) {
    BadValue("limit", state.at("limit"), "the number of a limit");
  }
  if (!(loaded.unbound > 0) || !std::isfinite(loaded.unbound)) {
    BadValue("unbound", state.at("unbound"), "a positive number");
  }
  if (loaded.calls < 0) BadValue("calls", state.at("calls"), "a count");
  loaded.unbound_limit = static_cast<Limit>(limit);
  return loaded;
}

}  // namespace ada::scaling
