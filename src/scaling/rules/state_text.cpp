// to_chars and from_chars: exact and independent of the locale.
#include "scaling/rules/state_text.h"

#include <charconv>
#include <cmath>
#include <sstream>

#include "error.h"

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
                const std::vector<std::string_view>& keys) {
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

// from_chars accepts neither the prefix 0x nor a second sign.
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

namespace {

// "scale_in nonzero largest new bin:count bin:count ..", bins of 0 left out.
std::string TailText(const LayerState& state) {
  const ExponentTail& tail = state.tail;
  std::string text = ToHex(tail.scale_in) + " " + std::to_string(tail.nonzero) + " " +
                     ToHex(tail.largest) + " " + (state.tail_is_new ? "1" : "0");
  for (int bin = 0; bin < ExponentTail::kBins; ++bin) {
    if (tail.bins[bin] == 0) continue;
    text += " " + std::to_string(bin) + ":" + std::to_string(tail.bins[bin]);
  }
  return text;
}

// Whether these numbers can come from counting.
bool IsPlausible(const ExponentTail& tail) {
  std::int64_t binned = 0;
  for (const std::int64_t count : tail.bins) {
    if (count < 0 || count > tail.nonzero - binned) return false;
    binned += count;
  }
  return binned == tail.nonzero && tail.scale_in > 0 && std::isfinite(tail.scale_in) &&
         tail.largest >= 0 && std::isfinite(tail.largest);
}

// Damaged text must not become bins that a rule uses: counts are checked against `nonzero`.
void ReadTail(const StateMap& state, LayerState& loaded) {
  const std::string& text = state.at("tail");
  const auto bad = [&] { BadValue("tail", text, "a tail of exponents"); };
  std::istringstream words(text);
  std::string scale_in, nonzero, largest, fresh;
  if (!(words >> scale_in >> nonzero >> largest >> fresh)) bad();
  const StateMap fields = {{"tail scale", scale_in},
                           {"tail nonzero", nonzero},
                           {"tail largest", largest},
                           {"tail new", fresh}};
  ExponentTail& tail = loaded.tail;
  tail.scale_in = static_cast<float>(ReadHex(fields, "tail scale"));
  tail.nonzero = ReadInteger(fields, "tail nonzero");
  tail.largest = ReadHex(fields, "tail largest");
  loaded.tail_is_new = ReadInteger(fields, "tail new") != 0;
  for (std::string word; words >> word;) {
    const std::size_t colon = word.find(':');
    if (colon == std::string::npos) bad();
    const StateMap pair = {{"tail bin", word.substr(0, colon)},
                           {"tail count", word.substr(colon + 1)}};
    const std::int64_t bin = ReadInteger(pair, "tail bin");
    if (bin < 0 || bin >= ExponentTail::kBins) bad();
    tail.bins[bin] = ReadInteger(pair, "tail count");
  }
  if (!IsPlausible(tail)) bad();
}

}  // namespace

StateMap SaveLayerState(const LayerState& state) {
  StateMap saved = {{"unbound", ToHex(state.unbound)},
                    {"limit", std::to_string(static_cast<int>(state.unbound_limit))},
                    {"calls", std::to_string(state.calls)}};
  if (state.tail.scale_in > 0) saved["tail"] = TailText(state);
  return saved;
}

// "tail" is optional, all others are not.
LayerState LoadLayerState(const StateMap& state, const std::string& layer) {
  StateMap always = state;
  always.erase("tail");
  ExpectKeys(always, "layer " + layer, {"unbound", "limit", "calls"});
  LayerState loaded;
  loaded.unbound = ReadHex(state, "unbound");
  loaded.calls = ReadInteger(state, "calls");
  const std::int64_t limit = ReadInteger(state, "limit");
  if (limit < 0 || limit > static_cast<int>(Limit::kBranch)) {
    BadValue("limit", state.at("limit"), "the number of a limit");
  }
  if (loaded.unbound < 0) BadValue("unbound", state.at("unbound"), "no negative number");
  if (loaded.calls < 0) BadValue("calls", state.at("calls"), "a count");
  loaded.unbound_limit = static_cast<Limit>(limit);
  if (state.count("tail") != 0) ReadTail(state, loaded);
  return loaded;
}

}  // namespace ada::scaling
